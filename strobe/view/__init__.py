"""The view a model is written against: the cells it is given, what they read, and their past."""

from strobe.view.cells import Cells
from strobe.view.view import Carry, TimeEncoder, View

__all__ = ["Carry", "Cells", "TimeEncoder", "View"]
