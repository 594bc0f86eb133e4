"""Data files: exact readers that refuse bad input and name the place."""

from tercet.datasets.libsvm import load_libsvm

__all__ = ["load_libsvm"]
