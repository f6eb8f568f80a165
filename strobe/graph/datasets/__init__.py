"""Published data sets by name: ``load("collegemsg")``; on the command line ``strobe data list`` and ``get``."""

from strobe.graph.datasets.catalog import DATASETS, find, load
from strobe.graph.datasets.dataset import TASKS, Dataset, DatasetFile
from strobe.graph.datasets.folder import data_dir, dataset_dir, status

__all__ = ["DATASETS", "TASKS", "Dataset", "DatasetFile", "data_dir", "dataset_dir", "find", "load", "status"]
