"""The command line: `tercet fit`, `predict`, `certify`, `compare`, `reproduce` and `theory`.

Exit codes: 0 certified or finished, 1 not certified, 2 bad input, 130 interrupted (what is finished is saved).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tercet import __version__
from tercet.checks import regular_file
from tercet.cli_theory import add_theory
from tercet.datasets import load_libsvm
from tercet.methods.minimize import minimize, resume
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.objectives.linear import LinearModel
from tercet.objectives.losses import LOSSES
from tercet.records import Status, Vector
from tercet.result import Result
from tercet.sampling import Full

if TYPE_CHECKING:
    from tercet.experiments.spec import Comparison

CERTIFIED, NOT_CERTIFIED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
METHODS = {"stm": STM, "scr": SCR, "sgd": SGD}
CLASSIFIERS = ("sigmoid_squares", "logistic")
FORMAT, VERSION = "tercet linear model", 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; bad input ends with one line on standard error, not with a traceback."""
    options = parser().parse_args(arguments)
    # A scheduler's SIGTERM is taken like Ctrl-C: the best point so far is saved.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code: int = options.command(options)
    except KeyboardInterrupt:
        print("tercet: interrupted before there was a point to save", file=sys.stderr)
        return INTERRUPTED
    except (OSError, ValueError) as error:
        print(f"tercet: {error}", file=sys.stderr)
        return BAD_INPUT
    return code


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = argparse.ArgumentParser(
        prog="tercet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"tercet {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="minimize a linear model over a LIBSVM file")
    fit.add_argument("file", help="LIBSVM text, plain or gz, bz2, xz")
    fit.add_argument("--n-features", type=int, help="columns of the file; without it as many as its largest index")
    fit.add_argument("--loss", choices=tuple(LOSSES), default="sigmoid_squares")
    fit.add_argument("--scale", type=float, help="scale of a robust loss")
    fit.add_argument("--l2", type=float, default=0.0, help="l2/2 |x|^2 is added to the mean loss")
    fit.add_argument("--alpha", type=float, default=0.0, help="alpha sum x^2/(1+x^2) is added to the mean loss")
    fit.add_argument("--intercept", action="store_true")
    fit.add_argument("--method", choices=tuple(METHODS), default="stm")
    fit.add_argument("--order", type=int, choices=(1, 2, 3), help="order of the certificate")
    fit.add_argument("--tol", type=float, default=1e-8)
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--max-seconds", type=float)
    fit.add_argument("--max-iterations", type=int)
    fit.add_argument("--max-epochs", type=float)
    fit.add_argument("--out", type=Path, help="where the model is written (.npz)")
    fit.add_argument("--checkpoint", type=Path, help="where the run is kept, to be resumed")
    fit.add_argument("--resume", action="store_true", help="continue from --checkpoint if it is there")
    fit.set_defaults(command=command_fit)

    predict = commands.add_parser("predict", help="predictions of a model, one a line")
    predict.set_defaults(command=command_predict)
    certify = commands.add_parser("certify", help="recompute the certificate of a model on given data")
    certify.add_argument("--order", type=int, choices=(1, 2, 3))
    certify.add_argument("--tol", type=float, default=1e-8)
    certify.set_defaults(command=command_certify)
    for command in (predict, certify):
        command.add_argument("model", type=Path, help="a file that `tercet fit --out` wrote")
        command.add_argument("file", help="LIBSVM text, plain or gz, bz2, xz")
    for command in (fit, predict, certify):
        command.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    add_experiments(commands)
    add_theory(commands)
    return top


def add_experiments(commands: Any) -> None:
    """The arguments of compare and reproduce."""
    compare = commands.add_parser("compare", help="methods x data sets x penalties x starts, and a report")
    compare.add_argument("file", nargs="?", type=Path, help="a TOML file; flags go before what it says")
    compare.add_argument("--data", type=names, help="names of data sets, or NAME=FILE for LIBSVM files, by commas")
    compare.add_argument("--l2", type=names, help="numbers by commas; 1e-3/n is lambda = 1e-3 beside the plain sum")
    compare.add_argument("--methods", type=names, help="names by commas")
    compare.add_argument("--starts", type=names, help="0, N for N(0, I), 3N, ... by commas")
    compare.add_argument("--seeds", type=int, help="how many seeds; 10 if the file does not say")
    compare.add_argument("--loss", help="instead of the data sets' own")
    compare.add_argument("--max-epochs", type=float, help="of one run, by the paper's counting")
    compare.add_argument("--max-seconds", type=float, help="of one run; makes the runs depend on the machine")
    compare.add_argument("--report-only", action="store_true", help="write the report of what is in the folder")
    compare.set_defaults(command=command_compare, out=Path("comparison"))
    reproduce = commands.add_parser("reproduce", help="the paper's experiments, and a report")
    reproduce.add_argument(
        "--quick",
        action="store_true",
        help="svmguide3 and a sample of a9a, in some minutes; all of it takes an hour or two on two cores",
    )
    reproduce.set_defaults(command=command_reproduce, out=None)
    for command in (compare, reproduce):
        command.add_argument("--out", type=Path, help="the folder of runs and report; what it has is not made again")
        command.add_argument("--jobs", type=int, default=2, help="processes at a time")
        command.add_argument("--data-dir", help="a folder with LIBSVM files; also TERCET_DATA")
        command.add_argument("--download", action="store_true", help="fetch files that are missing (needs pooch)")
        command.add_argument("--figures", action="store_true", help="also write PNG, PDF and CSV")


def names(text: str) -> list[str]:
    """A list by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def command_fit(options: argparse.Namespace) -> int:
    """Read, minimize, show, save."""
    if options.resume and options.checkpoint is None:
        raise ValueError("fit --resume: name the file to resume from with --checkpoint.")
    if options.out is not None and not options.out.parent.is_dir():
        raise ValueError(f"fit --out {options.out}: its folder is not there.")
    X, y, labels = read_data(options.file, options.n_features, options.loss in CLASSIFIERS)
    settings = {name: getattr(options, name) for name in ("loss", "scale", "l2", "alpha", "intercept")}
    problem = LinearModel(X, y, **settings)
    result = run(options, problem)
    if options.out is not None:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "settings": settings,
            "labels": labels,
            "n_features": X.shape[1],
        }
        save_model(options.out, header, result.x)
    show(result, options.json, {"labels": labels, "model": None if options.out is None else str(options.out)})
    return exit_code(result)


def run(options: argparse.Namespace, problem: LinearModel) -> Result:
    """From the start, or from the checkpoint that is there."""
    budgets = {name: getattr(options, name) for name in ("max_iterations", "max_seconds", "max_epochs")}
    if options.resume and options.checkpoint.exists():
        return resume(options.checkpoint, problem, method=METHODS[options.method](), **budgets)
    return minimize(
        problem,
        method=METHODS[options.method](),
        order=options.order,
        tol=options.tol,
        seed=options.seed,
        checkpoint=options.checkpoint,
        **budgets,
    )


def command_predict(options: argparse.Namespace) -> int:
    """Labels for a classifier, numbers for a regression."""
    header, x = load_model(options.model)
    X, _, _ = read_data(options.file, header["n_features"], False)
    z = model_on(header, X, np.zeros(X.shape[0])).margins(X, x)
    if header["labels"] is None:
        predictions: list[Any] = z.tolist()
    else:
        low, high = (float(label) for label, _ in sorted(header["labels"].items(), key=lambda item: item[1]))
        predictions = np.where(z > 0, high, low).tolist()
    if options.json:
        print(json.dumps({"predictions": predictions, "margins": z.tolist()}))
    else:
        print("\n".join(f"{value:.17g}" for value in predictions))
    return CERTIFIED


def command_certify(options: argparse.Namespace) -> int:
    """The certificate of the model's point, on the data of the file."""
    header, x = load_model(options.model)
    X, y, labels = read_data(options.file, header["n_features"], header["labels"] is not None)
    if labels != header["labels"]:
        raise ValueError(f"{options.file}: its labels are {labels}, but the model was fitted to {header['labels']}.")
    problem = model_on(header, X, y)
    result = minimize(problem, x, method=STM(Full()), order=options.order, tol=options.tol, max_iterations=0)
    if options.json:
        print(json.dumps({"fun": result.fun, "certificate": certificate_of(result)}))
    else:
        print(f"f {result.fun:.12g}\n{result.certificate}")
    return CERTIFIED if result.certificate.holds else NOT_CERTIFIED


def command_compare(options: argparse.Namespace) -> int:
    """Make the runs that are missing, then the report."""
    from tercet.experiments import spec, store

    if options.report_only:
        store.read_settings(options.out)
        return report(options)
    keys = ("data", "l2", "methods", "starts", "seeds", "loss", "max_epochs", "max_seconds")
    flags = {key: getattr(options, key) for key in keys if getattr(options, key) is not None}
    own = dict(name.split("=", 1) for name in flags.get("data", ()) if "=" in name)
    if own:
        flags |= {"data": [name.partition("=")[0] for name in flags["data"]], "files": own}
    if options.file is None and "data" not in flags:
        raise ValueError("compare: name a TOML file, or data sets with --data.")
    if options.file is not None:
        sys.path.insert(0, str(options.file.resolve().parent))  # where a method of the user's own may lie
    return make_runs(options, spec.located(options.file, flags))


def command_reproduce(options: argparse.Namespace) -> int:
    """The paper's protocol."""
    from tercet.experiments import reproduce

    options.out = options.out or Path("reproduction-quick" if options.quick else "reproduction")
    return make_runs(options, reproduce.protocol(options.quick))


def make_runs(options: argparse.Namespace, comparison: Comparison) -> int:
    """Run a comparison into its folder; an interrupted one says how to go on."""
    from tercet.experiments import store
    from tercet.experiments.compare import compare

    try:
        outcome = compare(
            comparison, options.out, jobs=options.jobs, data_dir=options.data_dir, download=options.download
        )
    except KeyboardInterrupt:
        kept = sum(len(store.read(options.out, name)) for name in store.FILES)
        again = f"{kept} finished records are in {options.out}; the same command goes on from there"
        print(f"tercet: interrupted; {again}", file=sys.stderr)
        return INTERRUPTED
    failed = f", {outcome.failed} of them failed (the report says why)" if outcome.failed else ""
    print(f"{outcome.runs} runs in {outcome.folder}{failed}")
    return report(options)


def report(options: argparse.Namespace) -> int:
    """Write the report, with --figures also pictures and tables, and say where."""
    from tercet.experiments import report as pages

    if options.figures:
        from tercet.experiments import figures

        for path in figures.write(options.out):
            print(path)
    print(f"report: {pages.write(options.out)}")
    return CERTIFIED


def read_data(file: str, n_features: int | None, binary: bool) -> tuple[Any, Vector, dict[str, int] | None]:
    """X, y and the map of two labels to 0 and 1, where there is one."""
    if not binary:
        X, y = load_libsvm(file, n_features)
        return X, y, None
    X, y, labels = load_libsvm(file, n_features, binary_labels=True)
    return X, y, {repr(float(label)): int(value) for label, value in labels.items()}


def model_on(header: dict[str, Any], X: Any, y: Vector) -> LinearModel:
    """The model of a file over other data."""
    return LinearModel(X, y, **header["settings"])


def save_model(path: Path, header: dict[str, Any], x: Vector) -> None:
    """Write coefficients and header, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            text = json.dumps({"format": FORMAT, "version": VERSION, **header})
            np.savez(file, allow_pickle=False, header=np.array(text), x=x)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_model(path: Path) -> tuple[dict[str, Any], Vector]:
    """Header and coefficients; ValueError for any other file."""
    try:
        with open(regular_file("load_model", path), "rb") as raw, np.load(raw, allow_pickle=False) as file:
            header, x = json.loads(str(file["header"])), np.asarray(file["x"], dtype=np.float64)
        if header["format"] != FORMAT or header["version"] != VERSION:
            raise ValueError("its header is not that of a linear model")
        if x.shape != (header["n_features"] + bool(header["settings"]["intercept"]),):
            raise ValueError(f"it holds {x.shape} coefficients for {header['n_features']} features")
        return header, x
    except FileNotFoundError:
        raise
    except Exception as error:  # whatever a foreign file makes NumPy or JSON raise
        raise ValueError(f"{path}: not a model that tercet wrote ({error}).") from error


def certificate_of(result: Result) -> dict[str, Any]:
    """The certificate for machines."""
    c = result.certificate
    chis = {
        name: getattr(c, name) for name in ("chi1", "chi2", "chi3", "eps1", "eps2", "eps3", "zeta", "order", "terms")
    }
    plain = {name: None if value != value else value for name, value in chis.items()}
    return {**plain, "holds": c.holds, "how": c.how}


def show(result: Result, as_json: bool, more: dict[str, Any]) -> None:
    """The result as a table, or as one JSON object."""
    if not as_json:
        print(result)
        return
    plain = {name: getattr(result, name) for name in ("fun", "success", "message", "nit", "seconds", "method")}
    counts, x = result.counts.as_dict(), np.asarray(result.x).tolist()
    whole = {
        **plain,
        "status": result.status.name,
        "certificate": certificate_of(result),
        "counts": counts,
        "x": x,
        **more,
    }
    print(json.dumps(whole))


def exit_code(result: Result) -> int:
    """0 certified, 1 not certified, 130 interrupted."""
    if result.status is Status.INTERRUPTED:
        return INTERRUPTED
    return CERTIFIED if result.success else NOT_CERTIFIED


if __name__ == "__main__":
    sys.exit(main())
