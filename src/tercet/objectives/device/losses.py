"""Losses of a margin, one derivative at a time, each formula written once for all array libraries.

With s = 1 - 2y for a loss of two classes, v = s z is the margin of the wrong side, and odd derivatives in z are those
in v times s. So targets are kept as s. The formulas and their names are those of `tercet.objectives.losses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from tercet.objectives import losses as host
from tercet.objectives.device.arrays import Array, Arrays

Part = Callable[[Arrays, int, Array, Array], Array]  # l^(order) from margins and targets


def sigmoid_squares(a: Arrays, order: int, z: Array, s: Array) -> Array:
    """l = P^2 / 2, l' = P^2 Q, l'' = P^2 Q (2Q - P), l''' = P^2 Q (4Q^2 - 7PQ + P^2) in v; P = p(v), Q = p(-v)."""
    v = s * z
    P = a.expit(v)
    if order == 0:
        return 0.5 * P * P
    Q = a.expit(-v)  # not 1 - P, which loses digits in the tail
    base = P * P * Q
    if order == 1:
        return s * base
    if order == 2:
        return base * (2.0 * Q - P)
    return s * base * ((4.0 * Q - 7.0 * P) * Q + P * P)


def logistic(a: Arrays, order: int, z: Array, s: Array) -> Array:
    """l = log(1 + exp(v)), l' = p(v), l'' = p(v) p(-v), l''' = p(v) p(-v) (p(-v) - p(v)) in v."""
    v = s * z
    if order == 0:
        size = a.xp.abs(v)
        return 0.5 * (v + size) + a.xp.log1p(a.xp.exp(-size))
    P = a.expit(v)
    if order == 1:
        return s * P
    Q = a.expit(-v)
    return P * Q if order == 2 else s * P * Q * (Q - P)


def squares(a: Arrays, order: int, z: Array, y: Array) -> Array:
    """l = 1/2 (z - y)^2."""
    r = z - y
    if order == 0:
        return 0.5 * r * r
    return r if order == 1 else a.xp.ones_like(r) if order == 2 else a.xp.zeros_like(r)


@cache
def cauchy(scale: float) -> Part:
    """l = c^2/2 log(1 + u^2), u = (z - y)/c; l' = c u w, l'' = (1 - u^2) w^2, l''' = 2u(u^2 - 3) w^3 / c."""

    def part(a: Arrays, order: int, z: Array, y: Array) -> Array:
        u = (z - y) / scale
        q = u * u
        if order == 0:
            return 0.5 * scale * scale * a.xp.log1p(q)
        w = 1.0 / (1.0 + q)
        if order == 1:
            return scale * u * w
        return (1.0 - q) * w * w if order == 2 else (2.0 / scale) * u * (q - 3.0) * w * w * w

    return part


@cache
def welsch(scale: float) -> Part:
    """l = c^2/2 (1 - e), e = exp(-u^2); l' = c u e, l'' = (1 - 2u^2) e, l''' = 2u(2u^2 - 3) e / c."""

    def part(a: Arrays, order: int, z: Array, y: Array) -> Array:
        u = (z - y) / scale
        q = u * u
        if order == 0:
            return -0.5 * scale * scale * a.xp.expm1(-q)
        e = a.xp.exp(-q)
        if order == 1:
            return scale * u * e
        return (1.0 - 2.0 * q) * e if order == 2 else (2.0 / scale) * u * (2.0 * q - 3.0) * e

    return part


@cache
def geman_mcclure(scale: float) -> Part:
    """l = c^2/2 u^2 w, w = 1 / (1 + u^2); l' = c u w^2, l'' = (1 - 3u^2) w^3, l''' = 12 u (u^2 - 1) w^4 / c."""

    def part(a: Arrays, order: int, z: Array, y: Array) -> Array:
        u = (z - y) / scale
        q = u * u
        w = 1.0 / (1.0 + q)
        if order == 0:
            return 0.5 * scale * scale * q * w
        if order == 1:
            return scale * u * w * w
        w2 = w * w
        return (1.0 - 3.0 * q) * w2 * w if order == 2 else (12.0 / scale) * u * (q - 1.0) * w2 * w2

    return part


def own(loss: Any) -> Part:
    """A user's own loss, whose `derivatives(z, y)` are given arrays of the library of X."""

    def part(a: Arrays, order: int, z: Array, y: Array) -> Array:
        four = loss.derivatives(z, y)
        if not isinstance(four, tuple | list) or len(four) != 4 or tuple(four[order].shape) != tuple(z.shape):
            raise ValueError(f"derivatives(z, y) of the loss must return four arrays of the shape of z, {z.shape}")
        return four[order]

    return part


NAMES = ("sigmoid_squares", "logistic", "squares", "cauchy", "welsch", "geman_mcclure")  # that a device knows


@dataclass(frozen=True)
class DeviceLoss:
    """What a linear model on a device asks of a loss."""

    part: Part
    two_classes: bool  # targets are 0 and 1, kept as s = 1 - 2y
    writable: bool = True  # made of arithmetic and a few functions, so that it can be written down for a device


def device_loss(loss: Any, call: Callable[..., Any]) -> DeviceLoss:
    """The formula of a loss as `tercet.objectives.losses.as_loss` gives it; `call` is what the user gave."""
    if isinstance(loss, host.SigmoidSquares):
        return DeviceLoss(sigmoid_squares, True)
    if isinstance(loss, host.Logistic):
        return DeviceLoss(logistic, True)
    if isinstance(loss, host.Squares):
        return DeviceLoss(squares, False)
    for kind, make in ((host.Cauchy, cauchy), (host.Welsch, welsch), (host.GemanMcClure, geman_mcclure)):
        if isinstance(loss, kind):
            return DeviceLoss(make(loss.scale), False)
    if isinstance(loss, host.CheckedLoss):
        return DeviceLoss(own(loss.own), False, False)
    raise ValueError(
        f"LinearModel(loss={call!r}): this loss is computed on the host; for data on a device give one of "
        f"{', '.join(NAMES)}, or an object with derivatives(z, y) that takes its arrays."
    )
