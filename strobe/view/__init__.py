"""The view a model is written against: the cells it is given, what they read, and their past."""

from strobe.view.cells import Cells
from strobe.view.share import Owners, Share
from strobe.view.view import Carry, View

__all__ = ["Carry", "Cells", "Owners", "Share", "View"]
