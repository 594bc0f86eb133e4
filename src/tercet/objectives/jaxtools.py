"""What the JAX objectives share: the precision of a structure of parameters, and the way to a flat vector and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tercet.checks import plain_array
from tercet.objectives.meaning import meaning
from tercet.records import Vector


def import_jax(user: str) -> Any:
    """JAX, or an ImportError that says how to get it."""
    try:
        import jax
    except ImportError as error:
        raise ImportError(f"{user} needs JAX: pip install 'tercet[jax]'.") from error
    return jax


def precision(tree: Any) -> np.dtype[Any]:
    """float32 where every floating leaf is float32 or less, else float64: the user's own choice of precision."""
    jax = import_jax("A JAX objective")
    kinds = [np.asarray(leaf).dtype for leaf in jax.tree_util.tree_leaves(tree)]
    floating = [kind for kind in kinds if kind.kind == "f"]
    return np.dtype(np.float32 if floating and np.result_type(*floating).itemsize <= 4 else np.float64)


def flatten(x0: Any, dtype: np.dtype[Any]) -> tuple[Vector, Callable[[Any], Any], Callable[[Vector], Any]]:
    """x0 as a flat float64 vector; the traceable way back; and the way back to NumPy leaves for the user."""
    jax = import_jax("A JAX objective")
    from jax.flatten_util import ravel_pytree

    for leaf in jax.tree_util.tree_leaves(x0):
        try:
            entry = plain_array(leaf)
        except ValueError as error:
            raise ValueError(f"minimize(x0=...): a leaf of x0 is not an array of real numbers ({error}).") from error
        if not np.all(np.isfinite(entry)):
            raise ValueError("minimize(x0=...): x0 holds nan or inf; start from finite numbers.")
    if type(x0) is np.ndarray and x0.ndim == 1 and x0.size:
        return x0.astype(dtype).astype(np.float64), lambda x: x, lambda x: np.array(x, dtype=dtype)
    with jax.enable_x64(dtype == np.float64):
        tree = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, dtype=dtype), x0)
        flat, unravel = ravel_pytree(tree)
        start = np.asarray(flat, dtype=np.float64)
    if start.size == 0:
        raise ValueError("minimize(x0=...): x0 has no entries; give at least one variable.")

    def restore(x: Vector) -> Any:
        with jax.enable_x64(dtype == np.float64):
            return jax.tree_util.tree_map(np.asarray, unravel(np.asarray(x, dtype=dtype)))

    return start, unravel, restore


def told_at(jax: Any, tree: Any, *things: Any) -> Any:
    """The meaning of functions and other values with parameters of a structure; None where it is not told."""
    means, (leaves, structure) = meaning(*things), jax.tree_util.tree_flatten(tree)
    return None if means is None else (*means, structure, tuple(np.shape(leaf) for leaf in leaves))


def derivative_family(jax: Any, f: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Compiled f(x, *rest), its gradient, Hessian, and products; x is a flat vector.

    T[u, v] is jvp(jvp(grad)); over directions V the derivatives of z -> f(x + Vz) at 0 give V'BV and T(V, V, V).
    """

    def hvp(x: Any, v: Any, *rest: Any) -> Any:
        return jax.jvp(lambda p: jax.grad(f)(p, *rest), (x,), (v,))[1]

    def tvp(x: Any, u: Any, v: Any, *rest: Any) -> Any:
        return jax.jvp(lambda p: hvp(p, v, *rest), (x,), (u,))[1]

    def along(x: Any, V: Any, *rest: Any) -> Any:
        zero = jax.numpy.zeros(V.shape[1], dtype=x.dtype)
        return jax.jacfwd(jax.hessian(lambda z: f(x + V @ z, *rest)))(zero)

    plain = {"value": f, "gradient": jax.grad(f), "hessian": jax.hessian(f), "hvp": hvp, "tvp": tvp, "tensor": along}
    return {name: jax.jit(call) for name, call in plain.items()}
