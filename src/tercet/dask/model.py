"""`tercet.dask.LinearModel`, `FiniteSum`, `Residuals`: objectives whose sums are made by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Client, default_client

from tercet.checks import positive
from tercet.dask.chunks import Chunks
from tercet.dask.engine import PATIENCE, Cluster, alive
from tercet.objectives.sharded.driver import SAMPLE
from tercet.objectives.sharded.finite_sum import ShardedFiniteSum
from tercet.objectives.sharded.model import ShardedLinearModel
from tercet.objectives.sharded.residuals import ShardedResiduals
from tercet.shards import Shards


def LinearModel(
    X: Any,
    y: Any = None,
    *,
    client: Client | None = None,
    weights: Any = None,
    loss: Any = "sigmoid_squares",
    l2: float = 0.0,
    alpha: float = 0.0,
    scale: float | None = None,
    intercept: bool = False,
    sample_bytes: int = SAMPLE,
    patience: float = PATIENCE,
) -> ShardedLinearModel:
    """`tercet.LinearModel` over shards that the workers of a Dask cluster read, or over chunks that they hold.

    X is `Shards` of files that every worker can open (y and weights are theirs), a dask array in row chunks, dense or
    of SciPy sparse matrices, or a dask dataframe, whose y and weights may be names of columns. Chunks of collections
    are made here, kept by the workers, and made again from their graph where one is lost.

    `client` is a `distributed.Client`, by default the last one made. A pass in which no task ends for `patience`
    seconds ends the run. The other settings are those of `tercet.LinearModel`.
    """
    engine = engine_of("LinearModel", X, y, weights, client, patience)
    settings: dict[str, Any] = {
        "l2": l2,
        "alpha": alpha,
        "scale": scale,
        "intercept": intercept,
        "sample_bytes": sample_bytes,
    }
    return ShardedLinearModel(engine.shards, loss, engine=engine, **settings)


def FiniteSum(
    loss: Callable[..., Any],
    X: Any,
    y: Any = None,
    *,
    client: Client | None = None,
    weights: Any = None,
    chunk: int | None = None,
    sample_bytes: int = SAMPLE,
    patience: float = PATIENCE,
) -> ShardedFiniteSum:
    """`tercet.FiniteSum` over shards or chunks: the mean over rows of loss(params, x, y), for a JAX function `loss`.

    X, y, weights, `client` and `patience` are as for `tercet.dask.LinearModel`; weights are the loss's third argument.
    Each worker needs JAX, and compiles the loss once.
    """
    engine = engine_of("FiniteSum", X, y, weights, client, patience)
    return ShardedFiniteSum(loss, engine.shards, chunk=chunk, sample_bytes=sample_bytes, engine=engine)


def Residuals(
    residual: Callable[..., Any],
    X: Any,
    y: Any = None,
    loss: str = "squares",
    *,
    client: Client | None = None,
    weights: Any = None,
    scale: float = 1.0,
    l2: Any = 0.0,
    chunk: int = 2048,
    sample_bytes: int = SAMPLE,
    patience: float = PATIENCE,
) -> ShardedResiduals:
    """`tercet.Residuals` over shards or chunks, for a JAX function residual(params, x, y) of a row.

    X, y, weights, `client` and `patience` are as for `tercet.dask.LinearModel`. A shard gives a triangle
    of d + 1 rows in place of its Jacobian. Each worker needs JAX, and compiles the residual once.
    """
    engine = engine_of("Residuals", X, y, weights, client, patience)
    return ShardedResiduals(
        residual, engine.shards, loss, scale=scale, l2=l2, chunk=chunk, sample_bytes=sample_bytes, engine=engine
    )


def engine_of(name: str, X: Any, y: Any, weights: Any, client: Any, patience: Any) -> Cluster:
    """Shards that workers read, or chunks of collections, on a client's cluster; ValueError where they do not fit."""
    call = f"tercet.dask.{name}"
    patience = positive(call, "patience", patience)
    cluster = client_of(name, client)
    if not isinstance(X, Shards):
        return Cluster(Chunks.of(call, cluster, X, y, weights, patience), cluster, patience=patience)
    if y is not None or weights is not None:
        raise ValueError(f"{call}(shards, y=..., weights=...): shards have their own; leave both out.")
    return Cluster(X, cluster, patience=patience)


def client_of(call: str, client: Any) -> Client:
    """A client with a cluster; ValueError where there is none."""
    if client is None:
        try:
            client = default_client()
        except ValueError as error:
            raise ValueError(
                f"tercet.dask.{call}(client=None): there is no client; make a distributed.Client."
            ) from error
    if not isinstance(client, Client) or client.asynchronous:
        raise ValueError(f"tercet.dask.{call}(client={client!r}): give a distributed.Client that is not asynchronous.")
    try:
        alive(client)
    except RuntimeError as error:
        raise ValueError(f"tercet.dask.{call}(client=...): {error}") from error
    return client
