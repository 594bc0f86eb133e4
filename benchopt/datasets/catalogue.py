"""Data sets of tercet's catalogue by name; LIBSVM files are looked for in the folder that TERCET_DATA names."""

from benchopt import BaseDataset

from tercet import datasets


class Dataset(BaseDataset):
    """What `tercet.datasets.load(data)` gives: a9a, covtype, svmguide3, generated ones; `name:ROWS` is a sample."""

    name = "catalogue"
    requirements = ["pip::tercet"]
    parameters = {"data": ["a9a"]}
    test_parameters = {"data": ["ill-conditioned"]}

    def get_data(self):
        """X and y."""
        found = datasets.load(self.data)
        return {"X": found.X, "y": found.y}
