"""Published data sets by name: ``load("collegemsg")``; on the command line ``strobe data list`` and ``get``."""

from strobe.graph.datasets.catalog import DATA_SETS, find, load
from strobe.graph.datasets.dataset import TASKS, DataSet, File
from strobe.graph.datasets.folder import data_dir, status, where

__all__ = ["DATA_SETS", "TASKS", "DataSet", "File", "data_dir", "find", "load", "status", "where"]
