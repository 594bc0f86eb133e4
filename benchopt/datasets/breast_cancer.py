"""Breast cancer data, scikit-learn's copy."""

from benchopt import BaseDataset
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


class Dataset(BaseDataset):
    """569 rows, 30 standardized columns."""

    name = "breast_cancer"
    requirements = ["scikit-learn"]

    def get_data(self):
        """X and y."""
        X, y = load_breast_cancer(return_X_y=True)
        return {"X": StandardScaler().fit_transform(X), "y": y.astype(float)}
