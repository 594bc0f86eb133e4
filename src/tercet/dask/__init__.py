"""Sums over rows on a Dask cluster: the sample lives with the driver, the sum on the workers.

    client = distributed.Client("tcp://scheduler:8786")
    model = tercet.dask.LinearModel(shards, client=client, loss="logistic", l2=1e-6)
    result = tercet.minimize(model)

`FiniteSum(loss, shards, client=client)` and `Residuals(residual, shards, client=client)` take JAX functions of a row.

Every pass is one task a shard, a pure function of the shard's number and x. What tasks give is added up in the order of
the shards: the answer has the same bits on one worker, on many, out of core, and after a worker was lost.
"""

try:
    from tercet.dask.engine import ClusterError, connect
    from tercet.dask.estimators import RobustClassifier, RobustRegressor
    from tercet.dask.model import FiniteSum, LinearModel, Residuals
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("dask", "distributed", "sklearn"):
        raise
    raise ImportError("tercet.dask needs Dask and scikit-learn: pip install 'tercet[dask,sklearn]'.") from error

__all__ = ["ClusterError", "FiniteSum", "LinearModel", "Residuals", "RobustClassifier", "RobustRegressor", "connect"]
