"""`tercet theory sample-size | sigma-max | complexity`: the inputs, the numbers and the formula used."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from math import isfinite
from typing import Any

from tercet import theory

OK = 0


def add_theory(commands: Any) -> None:
    """Put the sub-command and its three parts into the command line."""
    top = commands.add_parser("theory", help="sample sizes, sigma_max and iteration bounds as numbers")
    parts = top.add_subparsers(required=True, metavar="NUMBER")
    for add in (add_sample_size, add_sigma_max, add_complexity):
        command = add(parts)
        command.add_argument("--paper", action="store_true", help="the formula as the paper prints it")
        command.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def add_sample_size(parts: Any) -> argparse.ArgumentParser:
    """The arguments of `sample-size`."""
    command: argparse.ArgumentParser = parts.add_parser("sample-size", help="n, failure probability or accuracy")
    command.add_argument("--kind", choices=("vector", "matrix", "tensor"), default="vector")
    command.add_argument("-d", type=int, required=True, help="dimension")
    command.add_argument("-N", type=int, help="number of all terms (not needed with --replacement)")
    command.add_argument("--bound", type=float, help="largest norm of one term (vector, matrix)")
    command.add_argument("--width", type=float, help="b - a, range of one term (matrix, tensor)")
    command.add_argument("--order", type=int, default=3, help="order of the tensor")
    command.add_argument("--general", action="store_true", help="a tensor that is not symmetric")
    command.add_argument("--rank-one", action="store_true", help="tensors c a (x) a (x) a, as in a linear model")
    command.add_argument("-t", type=float, help="accuracy")
    command.add_argument("--delta", type=float, help="failure probability")
    command.add_argument("-n", type=int, help="sample size")
    command.add_argument("--variance", type=float, help="observed variance: empirical Bernstein instead of Hoeffding")
    command.add_argument("--replacement", action="store_true", help="drawn with replacement")
    command.add_argument("--statement", choices=("sharp", "corrected", "paper"), default="sharp")
    command.set_defaults(command=command_sample_size)
    return command


def add_model(command: argparse.ArgumentParser) -> None:
    """What sigma_max and the iteration bounds share."""
    command.add_argument(
        "--lipschitz", type=float, required=True, help="L_t, the Lipschitz constant of the third derivative"
    )
    command.add_argument("--kappa", type=float, nargs=3, default=(0.25, 0.25, 0.5), metavar=("KG", "KB", "KT"))
    command.add_argument("--theta", type=float, default=0.1)
    command.add_argument("--sigma0", type=float, default=1.0)
    command.add_argument("--order", type=int, choices=(1, 2, 3), default=1)
    command.add_argument("--relative", action="store_true", help="Condition 1 with |s| in place of eps^(1/3)")


def add_sigma_max(parts: Any) -> argparse.ArgumentParser:
    """The arguments of `sigma-max`."""
    command: argparse.ArgumentParser = parts.add_parser("sigma-max", help="the largest sigma a run can reach")
    add_model(command)
    command.add_argument("--eta2", type=float, default=0.8)
    command.add_argument("--gamma3", type=float, default=2.0)
    command.add_argument("--eps", type=float, help="for --paper, whose bound depends on it")
    command.set_defaults(command=command_sigma_max)
    return command


def add_complexity(parts: Any) -> argparse.ArgumentParser:
    """The arguments of `complexity`."""
    command: argparse.ArgumentParser = parts.add_parser("complexity", help="iterations until chi_i <= eps_i")
    add_model(command)
    command.add_argument("--eps", type=float, nargs="+", required=True, help="one number, or one for each order")
    command.add_argument("--gap", type=float, required=True, help="f(x0) - lower bound of f")
    command.add_argument("--delta", type=float, default=0.05, help="overall failure probability")
    command.add_argument("--eta", type=float, nargs=2, default=(0.2, 0.8), metavar=("ETA1", "ETA2"))
    command.add_argument("--gamma", type=float, nargs=3, default=(0.8, 1.2, 2.0), metavar=("G1", "G2", "G3"))
    command.add_argument("--sigma-min", type=float, default=1e-10)
    command.set_defaults(command=command_complexity)
    return command


def command_sample_size(options: argparse.Namespace) -> int:
    """Two of n, t and delta are given; the third is printed."""
    given = [name for name in ("n", "t", "delta") if getattr(options, name) is not None]
    if len(given) != 2:
        raise ValueError(
            f"theory sample-size: give two of -n, -t and --delta, not {len(given)}; the third is computed."
        )
    tail = the_tail(options)
    more = () if options.variance is None else (options.variance,)
    views: dict[str, Any] = {
        "n": lambda: tail.size(options.t, options.delta, *more),
        "t": lambda: tail.accuracy(options.n, options.delta, *more),
        "delta": lambda: tail.failure(options.n, options.t, *more),
    }
    wanted = next(name for name in views if name not in given)
    numbers = {name: getattr(options, name) for name in given} | {wanted: views[wanted]()}
    show(inputs(options, ("n", "t", "delta")), {**numbers, "computed": wanted}, tail.formula, options.json)
    return OK


def the_tail(options: argparse.Namespace) -> Any:
    """The bound that the arguments describe."""
    how: dict[str, Any] = {"replacement": options.replacement}
    if options.variance is None:
        how |= {"statement": options.statement, "paper": options.paper}
    elif options.paper or options.statement != "sharp":
        raise ValueError("theory sample-size --variance: the paper has no bound of this kind; leave --paper out.")
    kind = options.kind
    wanted = {"vector": "bound", "tensor": "width"}.get(kind)
    if wanted is not None and getattr(options, wanted) is None:
        raise ValueError(f"theory sample-size --kind {kind}: give --{wanted}.")
    make = getattr(theory, f"{kind}_{'tail' if options.variance is None else 'bernstein'}")
    if kind == "vector":
        return make(options.d, options.bound, options.N, **how)
    if kind == "matrix":
        return make(options.d, options.bound, options.N, width=options.width, **how)
    how |= {"order": options.order, "symmetric": not options.general, "rank_one": options.rank_one}
    return make(options.d, options.width, options.N, **how)


def command_sigma_max(options: argparse.Namespace) -> int:
    """sigma_max, or infinity with its reason."""
    found = theory.sigma_max(
        options.lipschitz, kappa=tuple(options.kappa), theta=options.theta, eta2=options.eta2, gamma3=options.gamma3,
        sigma0=options.sigma0, order=options.order, relative=options.relative, paper=options.paper, eps=options.eps,
    )  # fmt: skip
    numbers = asdict(found)
    show(inputs(options), numbers, numbers.pop("formula"), options.json)
    return OK


def command_complexity(options: argparse.Namespace) -> int:
    """K_succ, K and the delta of one iteration."""
    eps = options.eps[0] if len(options.eps) == 1 else tuple(options.eps)
    found = theory.complexity(
        eps, options.gap, options.lipschitz, delta=options.delta, kappa=tuple(options.kappa), theta=options.theta,
        eta=tuple(options.eta), gamma=tuple(options.gamma), sigma0=options.sigma0, sigma_min=options.sigma_min,
        order=options.order, relative=options.relative, paper=options.paper,
    )  # fmt: skip
    numbers = asdict(found)
    sigma = numbers.pop("sigma")
    numbers |= {"sigma_max": sigma["value"]}
    show(inputs(options), numbers, numbers.pop("formula"), options.json)
    return OK


def inputs(options: argparse.Namespace, less: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments as they were understood."""
    hidden = {"command", "json", *less}
    return {name: value for name, value in vars(options).items() if name not in hidden and value is not None}


def show(given: dict[str, Any], numbers: dict[str, Any], formula: str, as_json: bool) -> None:
    """Inputs, numbers and formula, for people or for machines; in JSON an infinite number is null beside its reason."""
    if as_json:
        plain = {name: None if isinstance(v, float) and not isfinite(v) else v for name, v in numbers.items()}
        print(json.dumps({"inputs": given, **plain, "formula": formula}))
        return
    for name, value in given.items():
        print(f"  {name:<16} {value}")
    for name, value in numbers.items():
        if value != "" and value == value:
            print(f"{name:<18} {f'{value:.10g}' if isinstance(value, float) else value}")
    print(f"{'formula':<18} {formula or 'none: see the reason'}")
