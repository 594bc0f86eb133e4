"""The Hessian of a network from its layers, at the price of their units and not of their parameters.

Where a JAX function of parameters x and one example takes parts of x into products W a + b with vectors a (`Site`), a
change dx acts through those products alone, each of which is moved by delta_k = dW_k a_k + db_k, a_k with the moves
before it:

    f(x + dx) = phi(delta),  delta_k = dW_k a_k(delta_1, ..., delta_{k-1})

So with g = grad phi, exactly,

    dx' hess f dx = delta' (hess phi) delta + 2 sum_k g_k' dW_k (a_k' delta),  delta_k = dW_k a_k(0),

which takes a tangent for each unit, and for the sum over examples a product of two matrices for each pair of layers.
Parts of x that enter otherwise count as units of their own, and a penalty on x alone is parted and taken once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tercet.objectives.programs import Program
from tercet.records import Matrix

SINGLE = 32  # a number that is made or moved by itself takes as long as so many in a product of matrices
SHUFFLES = ("slice", "reshape", "squeeze", "transpose", "broadcast_in_dim", "split")  # of parts of x

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plain:
    """A value, whether it depends on the example or on x in the way that is differentiated, and on moves."""

    value: Any
    data: bool = False
    moved: bool = False


@dataclass(frozen=True, eq=False)
class Index:
    """Entries of x: x[places]."""

    places: Places


@dataclass(frozen=True, eq=False)
class Own:
    """A function of x alone, not computed yet: what an operation makes of others."""

    make: Callable[..., Any]
    parts: tuple[Any, ...]

    def at(self, look: Callable[[Places], Any], known: dict[int, Any]) -> Any:
        """Its value, where `look` gives entries of x."""
        if id(self) not in known:
            known[id(self)] = self.make(*(part_at(part, look, known) for part in self.parts))
        return known[id(self)]


def part_at(part: Any, look: Callable[[Places], Any], known: dict[int, Any]) -> Any:
    """The value of one part of a function of x alone."""
    if isinstance(part, Own):
        return part.at(look, known)
    return look(part.places) if isinstance(part, Index) else part.value


@dataclass(frozen=True, eq=False)
class Product:
    """x[places] a, a vector or a number, not moved yet: an offset may still be added."""

    places: Places  # a row for each unit
    a: Plain
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Parted:
    """What depends on the example, plus a function of x alone."""

    data: Any
    own: Own


@dataclass(frozen=True, eq=False)
class Site:
    """Units that are moved together: delta = dx[places] a."""

    places: Places
    start: int  # of its units among all
    moved: bool  # whether a depends on the moves before

    @property
    def units(self) -> slice:
        """Among all."""
        return slice(self.start, self.start + len(self.places))


@dataclass(eq=False)
class Walk:
    """One evaluation, operation by operation, in which every product is moved by its part of `delta`."""

    jax: Any
    x: Any
    delta: Any = None  # None: by nothing
    sites: list[Site] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)  # a of each site
    direct: dict[Any, Any] = field(default_factory=dict)  # entries of x that were moved themselves
    known: dict[int, Any] = field(default_factory=dict)

    def move(self, value: Any, places: Places, a: Plain) -> Any:
        """The value, moved as a site of its own."""
        start = self.sites[-1].units.stop if self.sites else 0
        site = Site(places, start, a.moved)
        self.sites.append(site)
        self.inputs.append(a.value)
        return value if self.delta is None else value + self.delta[site.units].reshape(value.shape)

    def entries(self, places: Places) -> Any:
        """Entries of x, each a unit of its own."""
        key = (places.shape, places.tobytes())
        if key not in self.direct:
            one = Plain(self.jax.numpy.ones(1, self.x.dtype))
            self.direct[key] = self.move(self.x[places], places.reshape(-1, 1), one)
        return self.direct[key]

    def plain(self, v: Any) -> Plain:
        """The value of anything, in which x is moved."""
        if isinstance(v, Plain):
            return v
        if isinstance(v, Product):
            value = (self.x[v.places] @ v.a.value).reshape(v.shape)
            return Plain(self.move(value, v.places, v.a), True, True)
        if isinstance(v, Parted):
            return Plain(self.plain(v.data).value + self.plain(v.own).value, True, True)
        return Plain(part_at(v, self.entries, self.known), True, True)

    def run(self, jaxpr: Any, consts: Any, given: list[Any]) -> list[Any]:
        """What the operations make of the arguments."""
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, map(Plain, consts), strict=True))
        env.update(zip(jaxpr.invars, given, strict=True))

        def read(v: Any) -> Any:
            return Plain(v.val) if hasattr(v, "val") else env[v]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self.apply(eqn, list(map(read, eqn.invars))), strict=True))
        return list(map(read, jaxpr.outvars))

    def apply(self, eqn: Any, given: list[Any]) -> list[Any]:
        """One operation."""
        name = eqn.primitive.name
        if not all(isinstance(v, Plain) for v in given):
            if name in ("jit", "pjit"):
                return self.run(eqn.params["jaxpr"].jaxpr, eqn.params["jaxpr"].consts, given)
            if name in SHUFFLES and len(given) == 1 and isinstance(given[0], Index):
                return list(map(Index, shuffled(name, eqn.params, given[0].places)))
            joined = None
            if name == "dot_general":
                joined = product(eqn.params, *given)
            elif name in ("add", "add_any"):
                joined = self.added(eqn, *given)
            if joined is not None:
                return [joined]
            if all(isinstance(v, Index | Own) or (isinstance(v, Plain) and not v.data) for v in given):
                return [Own(picked(eqn, k), tuple(given)) for k in range(len(eqn.outvars))]
        values = list(map(self.plain, given))
        data, moved = any(v.data for v in values), any(v.moved for v in values)
        return [Plain(out, data, moved) for out in bind(eqn, [v.value for v in values])]

    def added(self, eqn: Any, a: Any, b: Any) -> Any:
        """A product with its offset, or what depends on the example and what does not; None for other sums."""
        if isinstance(a, Index | Own | Parted) and not isinstance(b, Index | Own):
            a, b = b, a
        if isinstance(a, Product) and isinstance(b, Index) and a.shape == b.places.shape:
            xp = self.jax.numpy
            one = Plain(xp.concatenate([a.a.value, xp.ones(1, self.x.dtype)]), True, a.a.moved)
            return Product(np.column_stack([a.places, b.places.reshape(-1)]), one, a.shape)
        if isinstance(a, Parted) and isinstance(b, Index | Own):
            return Parted(a.data, Own(picked(eqn, 0), (a.own, b)))
        if isinstance(a, Product) or (isinstance(a, Plain) and a.data):
            data, own = self.plain(a), b if isinstance(b, Own) else None
            if own is not None and np.shape(data.value) == eqn.outvars[0].aval.shape == ():
                return Parted(data, own)
        return None


def picked(eqn: Any, k: int) -> Callable[..., Any]:
    """The k-th value of an operation, as a function of what it is given."""
    return lambda *values: bind(eqn, list(values))[k]


def bind(eqn: Any, values: list[Any]) -> list[Any]:
    """The values of an operation."""
    found = eqn.primitive.get_bind_params(eqn.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # JAX before 0.10, and since
    out = eqn.primitive.bind(*functions, *values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def shuffled(name: str, params: dict[str, Any], places: Places) -> list[Places]:
    """Which entries of x these operations leave, and where."""
    if name == "slice":
        steps = params["strides"] or (1,) * places.ndim
        parts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
        return [places[tuple(slice(*part) for part in parts)]]
    if name == "reshape":
        return [places.reshape(params["new_sizes"])]
    if name == "squeeze":
        return [places.squeeze(tuple(params["dimensions"]))]
    if name == "transpose":
        return [places.transpose(params["permutation"])]
    if name == "split":
        return list(np.split(places, np.cumsum(params["sizes"])[:-1], axis=params["axis"]))
    shape, kept = params["shape"], params["broadcast_dimensions"]
    spread = [places.shape[kept.index(k)] if k in kept else 1 for k in range(len(shape))]
    return [np.broadcast_to(places.reshape(spread), shape)]


def product(params: dict[str, Any], a: Any, b: Any) -> Product | None:
    """Entries of x times a vector; None for other products."""
    (of_a, of_b), batch = params["dimension_numbers"]
    if isinstance(b, Index):
        a, b, of_a, of_b = b, a, of_b, of_a
    vector = isinstance(b, Plain) and np.ndim(b.value) == 1
    if not (isinstance(a, Index) and vector and len(of_a) == 1 and not any(batch)):
        return None
    places = np.moveaxis(a.places, of_a[0], -1)
    return Product(places.reshape(-1, places.shape[-1]), b, places.shape[:-1])


def once_each(squares: Any) -> Any:
    """Of symmetric matrices the entries on and above the diagonal."""
    rows, columns = np.triu_indices(squares.shape[-1])
    return squares[:, rows, columns]


def places_of_pairs(m: int) -> Places:
    """Where `once_each` has the entry (i, j)."""
    rows, columns = np.triu_indices(m)
    places = np.zeros((m, m), dtype=np.int64)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places


@dataclass(frozen=True, eq=False)
class Layers:
    """The sites of a function (x, *example) -> number, and the Hessian of its sum over examples."""

    jax: Any
    jaxpr: Any
    consts: Any
    sites: tuple[Site, ...]
    d: int

    @staticmethod
    def of(jax: Any, program: Program, d: int) -> Layers | None:
        """Of a traced function; None where the Hessian is cheaper as it is."""
        closed = program.closed
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars]
        found: list[Site] = []

        def look(x: Any, *example: Any) -> Any:
            layers = Layers(jax, closed.jaxpr, program.consts, (), d)
            walk = layers.walk(x, example)
            found.extend(walk[0].sites)
            return walk[1]

        jax.eval_shape(look, *shapes)
        made = Layers(jax, closed.jaxpr, program.consts, tuple(found), d)
        return made if found and made.pays else None

    @property
    def pays(self) -> bool:
        """Whether a tangent for each unit and the products of the inputs of each two sites take less than a tangent for
        each parameter. A tangent goes through d products and all units."""
        widths = [site.places.shape[1] for site in self.sites]
        pairs = (sum(widths) ** 2 + sum(widths)) // 2
        tangent = self.d + SINGLE * self.units
        return self.units * tangent + SINGLE * pairs < self.d * tangent

    @property
    def units(self) -> int:
        """Of all sites."""
        return self.sites[-1].units.stop

    def walk(self, x: Any, example: Any, delta: Any = None) -> tuple[Walk, Any, Any]:
        """One evaluation: the sites as they were met, what depends on the example, and what depends on x alone."""
        walk = Walk(self.jax, x, delta)
        places = np.arange(self.d)
        out = walk.run(self.jaxpr, self.consts, [Index(places), *(Plain(e, True) for e in example)])[0]
        own = 0.0 * x[0]
        if isinstance(out, Parted):
            out, own = out.data, part_at(out.own, lambda places: x[places], {})
        return walk, walk.plain(out).value, own

    def local(self, x: Any, example: Any) -> tuple[Any, Any, Any, Any]:
        """g, hess phi, and a with its derivative at each site, of one example."""
        xp, jax = self.jax.numpy, self.jax

        def phi(delta: Any) -> Any:
            walk, value, _ = self.walk(x, example, delta)
            return value, tuple(walk.inputs)

        def first(delta: Any) -> Any:
            slope, inputs = jax.grad(phi, has_aux=True)(delta)
            moving = [a for a, site in zip(inputs, self.sites, strict=True) if site.moved]
            return (slope, moving), (slope, inputs)

        (bent, moving), (slope, inputs) = jax.jacfwd(first, has_aux=True)(xp.zeros(self.units, x.dtype))
        return slope, bent, inputs, moving

    def sums(self, x: Any, batch: Any, counts: Any, weights: Any = None) -> Any:
        """What the Hessian is made of, for some examples; those that do not count may give anything."""
        jax, xp = self.jax, self.jax.numpy
        leaves = jax.tree_util.tree_leaves(batch)
        slope, bent, inputs, moving = jax.vmap(lambda *e: self.local(x, e))(*leaves)
        share = xp.where(counts, 1.0 if weights is None else weights, 0.0).astype(x.dtype)

        def kept(a: Any, times: bool) -> Any:
            over = (slice(None),) + (None,) * (a.ndim - 1)
            return xp.where(counts[over], share[over] * a if times else a, 0.0)

        slope, bent = kept(slope, True), kept(bent, True)
        a = [kept(part, False) for part in inputs]
        rest = iter(moving)
        turned: list[Any] = [kept(next(rest), False) if site.moved else None for site in self.sites]
        blocks = []
        for later, b in enumerate(self.sites):
            blocks.append(once_each(bent[:, b.units, b.units]).T @ once_each(a[later][:, :, None] * a[later][:, None]))
            for earlier, c in enumerate(self.sites[:later]):
                between = bent[:, b.units, c.units].reshape(len(counts), -1)
                block = between.T @ (a[later][:, :, None] * a[earlier][:, None]).reshape(len(counts), -1)
                block = block.reshape(*(len(s.places) for s in (b, c)), *(s.places.shape[1] for s in (b, c)))
                block = block.transpose(0, 2, 1, 3)
                if b.moved:
                    through = turned[later][:, :, c.units, None] * a[earlier][:, None, None]
                    block += (slope[:, b.units].T @ through.reshape(len(counts), -1)).reshape(block.shape)
                blocks.append(block.reshape(prod(b.places.shape), -1))
        return blocks, xp.sum(share)

    def nothing(self, x: Any) -> Any:
        """The sums over no example."""
        xp = self.jax.numpy
        shapes = []
        for k, b in enumerate(self.sites):
            shapes.append(tuple(m * (m + 1) // 2 for m in b.places.shape))
            shapes += [(prod(b.places.shape), prod(c.places.shape)) for c in self.sites[:k]]
        return [xp.zeros(shape, x.dtype) for shape in shapes], xp.zeros((), x.dtype)

    def hessian(self, x: Any, batch: Any, sums: Any) -> Matrix:
        """The Hessian that sums make; any examples serve for what does not depend on them."""
        jax, xp = self.jax, self.jax.numpy
        blocks, total = sums
        example = [leaf[0] for leaf in jax.tree_util.tree_leaves(batch)]
        H = total * jax.hessian(lambda p: self.walk(p, example)[2])(x)
        at = iter(blocks)
        for k, b in enumerate(self.sites):
            rows = b.places.reshape(-1)
            of_units, of_inputs = map(places_of_pairs, b.places.shape)
            block = next(at)[of_units[:, None, :, None], of_inputs[None, :, None, :]].reshape(len(rows), len(rows))
            H = H.at[rows[:, None], rows[None, :]].add(block)
            for c in self.sites[:k]:
                columns, block = c.places.reshape(-1), next(at)
                H = H.at[rows[:, None], columns[None, :]].add(block).at[columns[:, None], rows[None, :]].add(block.T)
        out: Matrix = 0.5 * (H + xp.transpose(H))
        return out
