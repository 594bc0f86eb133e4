"""Gaussian rows and classes of a logistic model."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """P(y = 1) = 1 / (1 + exp(-a'w)); columns are scaled from 1 down to 1/`condition`."""

    name = "simulated"
    parameters = {"n_samples, n_features, condition": [(5000, 50, 10.0)]}
    test_parameters = {"n_samples, n_features, condition": [(200, 5, 2.0)]}

    def get_data(self):
        """X and y."""
        rng = np.random.default_rng(self.get_seed(use_repetition=True))
        X = rng.standard_normal((self.n_samples, self.n_features))
        X *= np.geomspace(1.0, 1.0 / self.condition, self.n_features)
        margins = X @ rng.standard_normal(self.n_features)
        return {"X": X, "y": (rng.random(self.n_samples) < 1 / (1 + np.exp(-margins))).astype(float)}
