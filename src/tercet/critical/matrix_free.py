"""The certificate of a point whose Hessian is not formed: by products with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tercet.critical.errors import DIGITS, ROUNDED, newton_step
from tercet.critical.looks import VISIBLE, Doubt, WayDown, told_by
from tercet.records import Certificate

if TYPE_CHECKING:
    from tercet.critical.certify import Examination


def matrix_free(exam: Examination, blank: Certificate) -> tuple[Certificate, WayDown | None]:
    """With products only: chi_2 by Lanczos, Newton's step by conjugate gradients, x measured by x'Bx as a whole."""
    t, point, epsilon = exam.tolerances, exam.point, exam.traits.epsilon
    values, vectors = exam.second()
    scale = max(abs(float(values[-1])), np.finfo(float).tiny)
    s, solved = newton_step(point.hessian_product, exam.g)
    noise, of_f = exam.rounding()
    moved = exam.x if np.any(exam.x) else exam.way.reach.moved
    energy, left = float(moved @ point.hessian_product(moved)), max(0.0, -float(exam.g @ s))
    floor = float(np.linalg.norm(noise)) * ROUNDED
    D = exam.way.reach.at(exam.x, exam.x, np.zeros(0)).spans
    chi2, chi3, doubts = (0.0 if values[0] >= 0 else -float(values[0])), np.nan, list[Doubt]()
    if t.order >= 2 and (values[0] < -np.sqrt(epsilon) * scale if t.relative else chi2 > t.eps2):
        doubts = [Doubt(vectors[:, 0], 2)]
    elif t.order >= 3:
        flat = np.sqrt(epsilon) * scale if t.relative else t.zeta
        whole = len(values) == len(exam.g) or (len(values) > 2 and values[-1] > flat)
        chi3, doubts = exam.third(vectors[:, np.abs(values) <= flat] if whole else None, D, of_f)
    seen = exam.look(doubts, D, s, of_f)
    shows = not np.any(exam.x) and 0.5 * left > VISIBLE * of_f  # a start that was far out is no measure of an x of 0
    within = (left <= t.relative**2 * abs(energy) and not shows) or blank.chi1 <= floor
    error = 2.0 * np.abs(s) + 2 * epsilon * np.abs(exam.x)
    size = float(np.linalg.norm(moved))
    lost = float(np.linalg.norm(error)) / size if size > 0.0 else np.inf  # of an x that never left 0 nothing is known
    stands = seen.way_down is None and seen.ray is None
    certificate = replace(
        blank,
        **told_by(seen, D, D),
        chi2=chi2 if t.order >= 2 else np.nan,
        chi3=chi3,
        how="; ".join(exam.notes),
        lowest=float(values[0]),
        error_f=0.5 * left,
        digits=float(np.clip(-np.log10(lost), 0.0, DIGITS)) if solved and stands and lost > 0 else np.nan,
        rounding_f=of_f,
        rounding_g=float(np.linalg.norm(noise)),
        converged=(solved or blank.chi1 <= floor) and within if t.relative else blank.chi1 <= t.eps1,
        rises=bool(doubts) and stands,
    )
    return certificate, seen.way_down
