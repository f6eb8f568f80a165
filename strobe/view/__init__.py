"""The view a model is written against: the cells it is given, what they read, and their past."""

from strobe.view.cache import Cache, Reading
from strobe.view.cells import Cells
from strobe.view.chosen import ChosenCells
from strobe.view.share import Owners, Share
from strobe.view.view import Carry, View

__all__ = ["Cache", "Carry", "Cells", "ChosenCells", "Owners", "Reading", "Share", "View"]
