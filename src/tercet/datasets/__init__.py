"""Data: sets by name, and exact readers that refuse bad input and name the place."""

from tercet.datasets.catalogue import About, Dataset, about, load, load_file, names
from tercet.datasets.convert import shard_file
from tercet.datasets.libsvm import load_libsvm

__all__ = ["About", "Dataset", "about", "load", "load_file", "load_libsvm", "names", "shard_file"]
