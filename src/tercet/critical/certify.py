"""How critical a point is, how close to a minimizer, and the way down from one that is none.

    chi_1 = |grad f|,  chi_2 = max(0, -lambda_min(hess f)),  chi_3 = max |third f[y]^3| over the near-kernel

With `tol=None` nothing depends on units: every x_j is asked to within a fraction of its size, estimated by Newton's
step. With a `tol` the paper's chi_i <= eps_i are asked. Either way f itself is looked at along every direction of
which the derivatives leave doubt (`tercet.critical.looks`): those that bend down, those whose curvature is not told
from 0 once the diagonal of the Hessian is scaled to 1, the one where chi_3 is attained, and a Newton step that does not
tell how far the minimizer is. A visible fall is a way down; where f was seen to rise, chi_3 is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tercet.critical.another import from_another
from tercet.critical.errors import (
    REGULAR,
    RESOLVED,
    Curvature,
    Errors,
    Travelled,
    digits,
    errors_of,
    spans_of,
    step_across,
    told_from_zero,
    told_spans,
    undone,
)
from tercet.critical.looks import (
    LOOKED,
    VISIBLE,
    Doubt,
    Seen,
    Sight,
    WayDown,
    directions,
    look_along,
    sides_of,
    told_by,
)
from tercet.critical.matrix_free import matrix_free
from tercet.critical.measures import FORMED, kernel_measure, lowest_eigenpairs, lowest_on_cone, lowest_pair
from tercet.critical.proof import Proof, proved
from tercet.critical.tolerances import Tolerances
from tercet.domain import EVERYWHERE, Domain
from tercet.frame import FAINT, Reach
from tercet.objectives.base import NotFiniteError, Traits
from tercet.objectives.metered import MeteredPoint
from tercet.once import once
from tercet.records import Certificate, Flags, Matrix, Vector
from tercet.vectors import length, signs

SHOWS = 0.1  # of what Newton's step promises: where f falls by as much, it is more than rounding
EDGES = 8  # of a cone of directions: chi_2 takes an eigenvalue problem for each set of them
BEYOND = 10.0  # looks begin this many times as far out as x may be wrong
NEAREST = 0.1  # spans of x, where looks begin at the latest: a hill that x came over is not to be stepped over
FAINTEST = float(np.finfo(float).tiny / np.finfo(float).eps)  # numbers below it lose digits
UNSURE = 0.01  # of a row of B: where rounding changes it by more, it is not told from 0


@dataclass(eq=False)
class Examination:
    """A point under examination: what was found so far, each part asked for once."""

    point: MeteredPoint
    tolerances: Tolerances
    traits: Traits
    seed: int
    way: Travelled
    domain: Domain = EVERYWHERE  # where f can be looked at
    forms: bool = False  # B is formed
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.g, self.x = self.point.gradient(), self.point.x
        self.notes = [self.traits.provenance]
        self.differenced = self.point.differenced if self.traits.blur else None
        strides = self.differenced.strides if self.differenced else np.zeros(0)
        self.steps = strides * signs(len(strides), self.seed)
        self.off = self.rounded = 0.0  # how far f beside x misses its polynomial, and what rounding explains of that

    @once
    def around(self) -> tuple[Vector, Vector]:
        """Two points beside x, as far as rounding is told from what f does: beside |x_j|, or where x_j is 0 beside its
        span, or, if that is less, a length over which f bends by no more than its size and how far it fell."""
        sizes = np.abs(self.x)
        if self.forms and not np.all(self.x):
            spans = Reach(np.maximum(self.way.reach.size, sizes), self.way.reach.moved).spans
            size = abs(self.point.value()) + max(0.0, np.nan_to_num(self.way.gained, nan=0.0, posinf=0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                bent = np.sqrt((size or np.inf) / np.abs(np.diag(self.point.hessian())))
            sizes = np.where(self.x == 0.0, np.fmin(spans, bent), sizes)
        return sides_of(self.x, self.traits.epsilon, sizes)[0]

    def second(self) -> tuple[Vector, Matrix]:
        """The lowest eigenvalues with their vectors: all of them where B is formed, else those that products tell. With
        `tol=None` directions are read off the scaled matrix, and of a formed B no vectors are needed."""
        t, d = self.tolerances, len(self.g)
        if t.order < 2:
            return np.array([np.nan]), np.zeros((d, 0))
        self.notes.append("chi2 by a dense eigenvalue problem" if self.traits.dense else "chi2 by Lanczos")
        if t.relative and self.traits.dense:
            return np.linalg.eigvalsh(self.point.hessian()), np.zeros((d, 0))
        if t.relative and d > FORMED:
            return lowest_pair(self.point.hessian_product, d, self.seed)
        return lowest_eigenpairs(self.point, d, self.traits.dense, t.zeta, self.seed)

    def on_cone(self, chi2: float) -> tuple[float, list[Doubt]]:
        """chi_2 over the directions that stay in the domain, and the one where it is attained, where x is on bounds."""
        sides = self.domain.sides(self.x)
        if not 0 < np.count_nonzero(sides) <= EDGES:  # with more of them it stays what it is over all directions
            return chi2, []
        value, v = lowest_on_cone(self.point.hessian(), sides)
        return max(0.0, -value), [Doubt(v, 2)] if value < 0.0 else []

    def third(self, V: Matrix | None, D: Vector, of_f: float) -> tuple[float, list[Doubt]]:
        """chi_3 over the span of V, and the direction where it is attained, if that is too much: above eps_3, or, where
        no eps_3 is asked, such that it shows in f within the span of x."""
        chi3, y, note = kernel_measure(self.point, V, self.tolerances.eps3, self.seed)
        self.notes.append(note)
        if y is None or not chi3 > self.tolerances.eps3:
            return chi3, []
        far = 1.0 / float(np.max(np.abs(y) / D))
        shows = not self.tolerances.relative or chi3 * far**3 / 6 > VISIBLE * of_f
        return chi3, [Doubt(y, 3, flat=self.tolerances.relative > 0.0)] if shows else []

    def proof(self, B: Matrix, curvature: Curvature, D: Vector) -> Proof | None:
        """A proof that x is beside a minimizer, and that as far as x was asked for no curvature changes by more than
        what leaves Newton's step regular. Where there is one, no third derivative is asked, and no look at f."""
        if self.tolerances.order < 3 or not curvature.all_seen:
            return None
        found = proved(self.point, B, self.g)
        length = self.tolerances.relative * float(np.sqrt(D @ np.abs(B) @ D))
        return None if found is None or found.bends(length) > 2.0 * REGULAR else found

    def shallow(self, curvature: Curvature, D: Vector) -> list[Doubt]:
        """Directions that may bend down again within what was asked of x: v with |v'T[e, e]| > a v'Bv, where av and e
        reach that far. One product with T, along all directions at once."""
        V, bends = curvature.E[:, None] * curvature.V[:, curvature.seen], curvature.values[curvature.seen]
        if not bends.size:
            return []
        a = self.tolerances.relative / np.max(np.abs(V) / D[:, None], axis=0)
        e = V @ (a * signs(len(a), self.seed))
        share = np.abs(V.T @ self.point.third_product(e, e)) / (a * bends)
        worst = np.argsort(-share)[:LOOKED]
        return [Doubt(V[:, k], 3, resolved=True) for k in worst if share[k] > 1.0]

    def beyond(self, s: Vector) -> Vector:
        """T[s, s], and twice what Bs may be off by where B is made of differences, in whatever sense makes more of it:
        Newton's step is wrong by -1/2 B^-1 of that."""
        bend = self.point.third_product(s, s)
        if self.differenced is None:
            return bend
        drift: Vector = 2.0 * self.differenced.drift(s)
        return bend + (drift if float(bend @ drift) >= 0.0 else -drift)

    def rounding(self) -> tuple[Vector, float]:
        """How g and f differ from their Taylor polynomials a few units in the last place of x away: their rounding.

        Rounding that stays the same so close by is seen in the second differences of f further out. Where f is not even
        finite so close by, nothing is known of x as a minimizer. A g of differences is rounded as f is."""
        few, steps = 4.0 * self.traits.epsilon * signs(len(self.x), self.seed), self.steps
        beside = self.point.view.first_at(self.x * (1.0 + few))
        step, f = beside.x - self.x, self.point.value()
        with np.errstate(over="ignore", invalid="ignore"):
            off = np.zeros(0) if steps.size else beside.gradient() - self.g - self.point.hessian_product(step)
            first = abs(beside.value() - f - float(self.g @ step))
            missed, sizes = zip(*(self.missed(y) for y in self.around), strict=True)
            second = 0.5 * abs(sum(missed))
            second = 0.0 if second < self.traits.epsilon * max(sizes) else second  # of a larger f, far out
        if np.isfinite(first) and not np.all(self.x):  # an x_j that is 0 may be on the edge of the domain of f
            missed, second = ((0.0,), 0.0) if not np.isfinite(second) else (missed, second)
        if not np.isfinite(first + second):
            raise NotFiniteError("value")
        known = max(self.traits.epsilon * abs(f), first, FAINTEST)
        self.off, self.rounded = max(map(abs, missed)), known
        rounded = max(known, second)
        return (rounded / np.abs(steps) if steps.size else np.where(np.isfinite(off), off, 0.0)), rounded

    def edges(self, B: Matrix, D: Vector) -> list[Doubt]:
        """A direction along which f beside x is not what its derivatives say: at an edge, or where they are wrong."""
        far = self.traits.epsilon * float(np.abs(self.g) @ D + D @ np.abs(B) @ D)
        jagged = far > 0.0 and self.off > VISIBLE * max(self.rounded, far)
        return [Doubt(self.around[1] - self.x, 1, resolved=True)] if jagged else []

    def missed(self, y: Vector) -> tuple[float, float]:
        """f(y) less its Taylor polynomial of second order at x, and |f(y)|."""
        there = self.point.view.at(y)
        s, f = there.x - self.x, there.value()
        return f - self.point.value() - float(s @ (self.g + 0.5 * self.point.hessian_product(s))), abs(f)

    def told(self, D: Vector) -> Flags:
        """Which rows of B are more than rounding, as second differences of B see it: along an x_j on which f does not
        depend B_jj is another number at every x, and scaled to 1 it would look like a curvature. Where each bends f by
        what can be seen beside the others and beside f, none is."""
        B = self.point.hessian()
        bends = np.abs(np.diag(B)) * D * D
        if np.all(bends > FAINT * max(float(np.max(bends)), abs(self.point.value()))):
            return np.ones(len(D), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):
            beside = sum(self.point.view.at(y).hessian_product(D) for y in self.around)
            off = np.abs(beside - 2.0 * (B @ D))
            return ~(off > UNSURE * (np.abs(B) @ D))

    def close(self, errors: Errors, D: Vector, of_f: float, rises: bool) -> bool:
        """Every x_j is as close as was asked, and f has nothing more to gain beside what it gained on the way.

        Where Newton's step does not tell how far the minimizer is, no more may be left than rounding hides, and f has
        to rise both ways. An x_j that is measured by its span, which may only come from a start that was far out, has
        to be so close that nothing more shows in f, or, where f is flat like x^3 or more, no more than that leaves.
        """
        t = self.tolerances
        if not t.relative:
            return float(np.linalg.norm(self.g)) <= t.eps1
        if errors.regular is False and rises and errors.f <= VISIBLE * of_f:
            return True
        if not errors.within(t.relative, self.x, D) or errors.f > t.relative * self.way.gained + of_f:
            return False
        if errors.regular is None or bool(np.all(told_from_zero(self.x, errors.s))):
            return True
        flat = 0.0 if errors.regular else t.relative**3 * self.way.gained
        if not errors.f > max(VISIBLE * of_f, flat):
            return True
        there = self.point.view.at(self.x + errors.s).value()  # where rounding is not seen beside x, it is there
        return not self.point.value() - there > SHOWS * errors.f

    def early(self, curvature: Curvature, errors: Errors, D: Vector, of_f: float) -> bool:
        """Whether a run is not as close as was asked, and its next step promises a visible fall: looks come later."""
        sees = self.way.gained > 0.0 and not self.way.away and errors.f > VISIBLE * of_f and curvature.all_seen
        return self.tolerances.relative > 0.0 and sees and not errors.within(self.tolerances.relative, self.x, D)

    def idle(self, way: WayDown, D: Vector, e: Vector) -> bool:
        """Whether a fall ends where looks begin, about where x may be, over all x_j together, and where f is flat like
        x^3 or more no more than that leaves: beside a minimum at which f is 0 every last digit of x shows in f."""
        r, gained = self.tolerances.relative, np.nan_to_num(self.way.gained, nan=0.0, posinf=0.0)
        near = length(way.s / D) <= BEYOND * max(r, float(np.max(np.abs(e) / D))) * np.sqrt(len(D))
        return r > 0.0 and way.fall <= r**3 * gained and bool(near)

    def look(
        self,
        doubts: list[Doubt],
        D: Vector,
        s: Vector,
        of_f: float,
        slope: Vector | None = None,
        curvature: Curvature | None = None,
    ) -> Seen:
        """f along the directions in doubt, each scaled to the size of x, from ten times as far as x may be wrong."""
        if not doubts:
            return Seen()
        point, t = self.point, self.tolerances
        relative = t.relative or float(np.sqrt(self.traits.epsilon))
        gained = max(self.way.gained, 0.0)
        limit = relative * gained if gained > 0.0 else np.inf
        least = max(of_f, self.traits.epsilon * gained) if self.way.away else of_f
        # Of a sum of squares |l'| |a_j| is at most sqrt(2 f B_jj) in the mean: what the rounding of x_j a_j does to f.
        bend = np.abs(np.diag(point.hessian())) if self.traits.dense else np.zeros(1)
        grain = float(np.max(D * np.sqrt(2.0 * abs(point.value()) * bend)))
        value, epsilon, view, domain = point.value(), self.traits.epsilon, point.view, self.domain

        def gradient(x: Vector) -> Vector:
            return view.at(x).gradient()

        sight = Sight(
            lambda x: view.at(x).value(), self.x, value, least, D, limit, slope, epsilon, grain, domain, gradient
        )

        def reach(v: Vector) -> float:
            """Where the third derivative along v makes a change that can be seen, tenfold."""
            cubic = abs(float(v @ point.third_product(v, v))) if t.order >= 3 else 0.0
            return 10.0 * float(np.cbrt(600.0 * sight.noise / cubic)) if cubic > 0 else 0.0

        def across(v: Vector) -> Callable[[Vector], Vector]:
            if curvature is None:
                return np.zeros_like
            beside = curvature.across(v, D)
            return lambda x: step_across(view.at(x), beside, v, D, sight.noise)

        self.notes.append(f"f looked at along {len(doubts)} direction{'s' * (len(doubts) > 1)}")
        doubts = [replace(each, v=each.v / float(np.max(np.abs(each.v) / D))) for each in doubts]
        first = BEYOND * max(relative, float(np.max(np.abs(s) / D)))
        seen = look_along(sight, doubts, min(first, NEAREST), reach, across)
        if seen.way_down is None and seen.free and curvature is not None:
            return replace(seen, way_down=from_another(sight, point, seen.free))
        return seen


def certify(
    point: MeteredPoint,
    n: int,
    tolerances: Tolerances,
    traits: Traits,
    seed: int = 0,
    way: Travelled | None = None,
    brief: bool = False,
    domain: Domain = EVERYWHERE,
) -> tuple[Certificate, WayDown | None]:
    """The certificate of a point up to the order asked for, and a way down where one is seen.

    A gradient (usually known), and for the rounding errors another, three values and, where a row of B may be nothing
    else, two products with B beside x; a Hessian (dense) or some 20-60 products (Lanczos). For order 3, where nothing
    is proved, a third-derivative product along Newton's step; over a near-kernel one evaluation of all third
    derivatives where a bound suffices, else the products of a power iteration, and values of f. With `brief`, and
    where only chi_1 <= eps_1 is asked, the gradient alone. `way` is what is known of how x was reached; f is looked
    at in the domain only.
    """
    t = tolerances
    exam = Examination(point, t, traits, seed, way or Travelled(Reach.of(point.x)), domain)
    chi1 = length(exam.g)
    blank = Certificate(
        chi1, np.nan, np.nan, t.eps1, t.eps2, t.eps3, t.zeta, t.order, point.terms, n, "", relative=t.relative
    )
    if not np.isfinite(chi1) or brief or (t.order == 1 and not t.relative):
        return replace(blank, how=traits.provenance, converged=not brief and chi1 <= t.eps1), None
    forms = traits.dense and (t.order > 1 or point.known.hessian is not None)
    try:
        return formed(exam, blank) if forms else matrix_free(exam, blank)
    except np.linalg.LinAlgError as error:  # in units in which squares of lengths or curvatures overflow
        raise NotFiniteError("hessian") from error


def formed(exam: Examination, blank: Certificate) -> tuple[Certificate, WayDown | None]:
    """With the Hessian as a matrix."""
    t, epsilon, point, exam.forms = exam.tolerances, exam.traits.epsilon, exam.point, True
    values, vectors = exam.second()
    way = Reach(np.maximum(exam.way.reach.size, np.abs(exam.x)), exam.way.reach.moved)
    told = exam.told(way.spans)
    B = point.hessian() if told.all() else point.hessian() * np.outer(told, told)
    now, far = replace(way, bend=np.abs(np.diag(B))), np.maximum(way.size, way.moved)
    D = spans_of(now, far, exam.way.reach.bend)
    curvature = Curvature.of(B, now.lengths(D, epsilon**2), max(epsilon, exam.traits.blur / RESOLVED), D)
    (noise, of_f), proof = exam.rounding(), exam.proof(B, curvature, D)
    third = proof or (exam.beyond if t.order >= 3 else None)
    if t.order >= 3 and exam.steps.size:  # central differences of f miss T[h, h] / 6 of g
        noise = np.hypot(noise, point.third_product(exam.steps, exam.steps) / 6.0)
    errors = errors_of(curvature, exam.g, np.where(B.any(axis=1), noise, 0.0), third, exam.x, epsilon)
    chi2, chi3, doubts = measured(exam, (values, vectors), curvature, errors, D, of_f, proof)
    left = np.where(told, exam.g + point.hessian() @ errors.s, 0.0)
    doubts += exam.edges(B, D)
    seen = Seen() if exam.early(curvature, errors, D, of_f) else exam.look(doubts, D, errors.e, of_f, left, curvature)
    if seen.way_down is not None and exam.idle(seen.way_down, D, errors.e):
        seen = replace(seen, way_down=None)
    found = errors.x if seen.within is None else errors.x + seen.within
    stands = seen.way_down is None and seen.ray is None
    rises, known = bool(doubts) and stands, t.order >= 3 or bool(curvature.seen.all())
    right = digits(exam.x, found, told_spans(far, found, D))
    # Of an x without a right digit nothing is known, unless f had nothing to gain on the way that could be seen.
    placed = right > 0.0 or exam.way.gained <= VISIBLE * of_f
    converged = exam.close(errors, D, of_f, rises) and (not t.relative or (placed and not seen.contradicted))
    certificate = replace(
        blank,
        **told_by(seen, D, curvature.E),
        chi2=chi2 if t.order >= 2 else np.nan,
        chi3=chi3,
        how="; ".join(exam.notes),
        lowest=float(values[0]),
        condition=curvature.condition,
        error_f=errors.f,
        error_x=tuple(found.tolist()),
        digits=right if stands and converged and known else np.nan,
        rounding_f=of_f,
        rounding_g=errors.noise,
        converged=converged,
        strict=not seen.free if known else None,
        rises=rises,
    )
    if proof is not None and certificate.holds and certificate.strict:
        certificate = replace(certificate, bound_x=tuple(proof.bound.tolist()))
    return certificate, seen.way_down


def measured(
    exam: Examination,
    eigen: tuple[Vector, Matrix],
    curvature: Curvature,
    errors: Errors,
    D: Vector,
    of_f: float,
    proof: Proof | None,
) -> tuple[float, float, list[Doubt]]:
    """chi_2 and chi_3, and the directions in which derivatives leave doubt."""
    t, (values, vectors) = exam.tolerances, eigen
    chi2, chi3, doubts = (0.0 if values[0] >= 0 else -float(values[0])), np.nan, list[Doubt]()
    if t.order >= 2:
        lowest = vectors[:, :1] if not t.relative and chi2 > t.eps2 else curvature.falling()
        chi2, edges = exam.on_cone(chi2) if chi2 > 0.0 else (chi2, [])
        doubts = [*(Doubt(v, 2) for v in lowest.T[:LOOKED]), *edges]
    if t.order >= 3:
        flat = curvature.flat() if t.relative else vectors[:, np.abs(values) <= t.zeta]
        V = np.linalg.qr(flat)[0] if t.relative and flat.size else flat
        chi3, more = exam.third(V, D, of_f)
        sure = undone(exam.point, curvature, errors.s) if proof is None else curvature
        doubts += more + directions(sure.flat()) + ([Doubt(errors.e, 3)] if errors.regular is False else [])
        doubts += exam.shallow(curvature, D) if t.relative and proof is None else []
    return chi2, chi3, doubts
