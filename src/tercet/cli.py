"""The command line: `tercet fit`, `predict`, `certify`, `shard`, `compare`, `reproduce` and `theory`.

Exit codes: 0 certified or finished, 1 not certified, or a run failed, 2 bad input, 130 interrupted (what is finished is
saved).
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
from tercet.cli_models import (
    FORMAT,
    VERSION,
    header_of,
    load_model,
    load_point,
    metrics_of,
    model_on,
    no_data_set,
    read_data,
    save_model,
)
from tercet.cli_shard import add_shard, folder_model
from tercet.cli_theory import add_theory
from tercet.methods.certifying import certify
from tercet.methods.minimize import minimize, resume
from tercet.methods.sgd import SGD
from tercet.methods.stm import SCR, STM
from tercet.objectives.device.place import to_device
from tercet.objectives.losses import LOSSES
from tercet.records import Certificate, Status
from tercet.result import Result

if TYPE_CHECKING:
    from tercet.experiments.spec import Comparison

CERTIFIED, NOT_CERTIFIED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
METHODS = {"stm": STM, "scr": SCR, "sgd": SGD}
CLASSIFIERS = ("sigmoid_squares", "logistic")
KINDS = ("hessian", "sandwich", "bootstrap")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; bad input ends with one line on standard error, not with a traceback."""
    options = parser().parse_args(arguments)
    # A scheduler's SIGTERM is taken like Ctrl-C: the best point so far is saved.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("tercet: interrupted before there was a point to save", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # who reads has read enough: `tercet predict ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CERTIFIED
    except (OSError, ValueError) as error:
        about = error.filename if isinstance(error, OSError) else None
        print(f"tercet: {error}" if about is None else f"tercet: {about}: {error.args[1]}", file=sys.stderr)
        return BAD_INPUT
    return code


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = argparse.ArgumentParser(
        prog="tercet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--version", action="version", version=f"tercet {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    fit = commands.add_parser("fit", help="minimize a linear model over a LIBSVM file or a folder of shards")
    fit.add_argument("file", help="LIBSVM text, plain or gz, bz2, xz; or a folder of `tercet shard`, read out of core")
    fit.add_argument("--dask", metavar="ADDRESS", help="the scheduler of a Dask cluster that reads the folder")
    fit.add_argument(
        "--device", help="where the data goes: cuda, cuda:1 or cpu, by PyTorch; without it NumPy and SciPy"
    )
    fit.add_argument("--method", choices=tuple(METHODS), default="stm")
    fit.add_argument("--order", type=int, choices=(1, 2, 3), help="order of the certificate")
    fit.add_argument("--tol", type=float, help="eps_1 of the certificate; without it each x_j to half of its digits")
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument("--max-seconds", type=float)
    fit.add_argument("--max-iterations", type=int)
    fit.add_argument("--max-epochs", type=float)
    fit.add_argument("--out", type=Path, help="where the model is written (.npz)")
    fit.add_argument("--checkpoint", type=Path, help="where the run is kept, to be resumed")
    fit.add_argument("--resume", action="store_true", help="continue from --checkpoint if it is there")
    fit.add_argument("--summary", action="store_true", help="also the table of standard errors")
    fit.add_argument("--kind", choices=KINDS, help="of the standard errors")
    fit.set_defaults(command=command_fit)

    predict = commands.add_parser("predict", help="predictions of a model, one a line")
    predict.add_argument("--proba", action="store_true", help="of a classifier: the probability of the larger label")
    predict.add_argument("--metrics", action="store_true", help="also how good they are for the targets of the file")
    predict.set_defaults(command=command_predict)
    certified = commands.add_parser("certify", help="the certificate of a model, or of any coefficients, on given data")
    certified.add_argument("--order", type=int, choices=(1, 2, 3))
    certified.add_argument("--tol", type=float, help="as in `tercet fit`")
    certified.set_defaults(command=command_certify)
    predict.add_argument("model", type=Path, help="a file that `tercet fit --out` wrote")
    certified.add_argument("model", type=Path, help="such a file, or coefficients: .npy, or text with a number a line")
    for command in (predict, certified):
        command.add_argument("file", help="LIBSVM text, plain or gz, bz2, xz")
    for command in (fit, certified):
        add_model(command)
    for command in (fit, predict, certified):
        command.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    add_shard(commands)
    add_experiments(commands)
    add_theory(commands)
    return top


def add_model(command: Any) -> None:
    """The arguments that say which model."""
    command.add_argument("--n-features", type=int, help="columns of the file; without it as many as its largest index")
    command.add_argument("--loss", choices=tuple(LOSSES), default="sigmoid_squares")
    command.add_argument("--scale", type=float, help="scale of a robust loss, or of the smooth quantile")
    command.add_argument("--dispersion", type=float, help="of negative_binomial: var y = mu + dispersion mu^2 (1)")
    command.add_argument("--quantile", type=float, help="of smooth_quantile (0.5)")
    command.add_argument("--l2", type=float, default=0.0, help="l2/2 |x|^2 is added to the mean loss")
    command.add_argument("--alpha", type=float, default=0.0, help="alpha sum x^2/(1+x^2) is added to the mean loss")
    command.add_argument("--intercept", action="store_true")


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
    reproduce.add_argument(
        "--all", action="store_true", help="also the variance-reduced methods and the third-order methods of others"
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
    if os.path.isdir(options.file):
        settings = {name: getattr(options, name) for name in ("loss", "scale", "l2", "alpha", "intercept")}
        problem, layout, labels = folder_model(options.file, settings, options.dask)
        columns, labels = layout.columns, labels if options.loss in CLASSIFIERS else None
    elif options.dask is not None:
        raise ValueError(f"fit --dask: {options.file} is no folder; cut it with `tercet shard` first.")
    else:
        X, y, labels = read_data(options.file, options.n_features, options.loss in CLASSIFIERS)
        settings = header_of(options)["settings"]
        columns = X.shape[1]
        if options.device is not None:
            X, y = to_device(f"fit --device {options.device}", X, y, options.device)
        problem = model_on({"settings": settings}, X, y)
    result = run(options, problem)
    if options.out is not None:
        header = {
            "format": FORMAT,
            "version": VERSION,
            "settings": settings,
            "labels": labels,
            "n_features": columns,
        }
        save_model(options.out, header, result.x)
    table = result.summary(options.kind, force=True) if options.summary else None
    if table is not None and not options.json:
        print(table, end="\n\n")
    show(result, options.json, {"labels": labels, "model": None if options.out is None else str(options.out)})
    return exit_code(result)


def run(options: argparse.Namespace, problem: Any) -> Result:
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
    """Labels or probabilities for a classifier, expected targets for a regression."""
    header, x = load_model(options.model)
    labels = header["labels"]
    if options.proba and labels is None:
        loss = header["settings"]["loss"]
        raise ValueError(f"{options.model}: --proba goes with a classifier; the loss of this model is {loss}.")
    X, y, _ = read_data(options.file, header["n_features"], False)
    model = model_on(header, X, np.full(X.shape[0], 1.0))
    z = model.margins(X, x)
    mean = np.asarray(model.loss.mean(z) if hasattr(model.loss, "mean") else z)
    if labels is None:
        predictions: list[Any] = mean.tolist()
    elif options.proba:
        predictions = np.exp(-np.logaddexp(0.0, -z)).tolist()  # both losses model it by the logistic function
    else:
        low, high = (float(label) for label, _ in sorted(labels.items(), key=lambda item: item[1]))
        predictions = np.where(z > 0, high, low).tolist()
    metrics = metrics_of(labels, options.file, y, z, mean) if options.metrics else None
    if options.json:
        told = {} if metrics is None else {"metrics": metrics}
        print(json.dumps({"predictions": predictions, "margins": z.tolist(), **told}))
        return CERTIFIED
    for name, value in (metrics or {}).items():
        print(f"{name} {value:.6g}", file=sys.stderr)  # beside the predictions, which may go into a pipe
    print("\n".join(f"{value:.17g}" for value in predictions))
    return CERTIFIED


def command_certify(options: argparse.Namespace) -> int:
    """The certificate of a model's point, or of any coefficients, on the data of the file."""
    header, x = load_point(options) if options.model.suffix != ".npz" else load_model(options.model)
    X, y, labels = read_data(options.file, header["n_features"], binary=header["settings"]["loss"] in CLASSIFIERS)
    if "labels" in header and labels != header["labels"]:
        raise ValueError(f"{options.file}: its labels are {labels}, but the model was fitted to {header['labels']}.")
    problem = model_on(header, X, y)
    if len(x) != problem.d:
        raise ValueError(
            f"{options.model}: it holds {len(x)} coefficients, but the model of {options.file} has {problem.d}."
        )
    found, f = certify(problem, x, order=options.order, tol=options.tol), float(problem.over(None).at(x).value())
    if options.json:
        print(json.dumps({"fun": f, "certificate": certificate_of(found)}))
    else:
        print(f"f {f:.12g}\n{found}")
    return CERTIFIED if found.holds else NOT_CERTIFIED


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
        no_data_set(str(options.file), f"which is given as --data {options.file}")
        sys.path.insert(0, str(options.file.resolve().parent))  # where a method of the user's own may lie
    return make_runs(options, spec.located(options.file, flags))


def command_reproduce(options: argparse.Namespace) -> int:
    """The paper's protocol."""
    from tercet.experiments import reproduce

    name = "reproduction" + ("-quick" if options.quick else "") + ("-all" if options.all else "")
    options.out = options.out or Path(name)
    return make_runs(options, reproduce.protocol(options.quick, options.all))


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
    code = report(options)
    return NOT_CERTIFIED if outcome.failed else code


def report(options: argparse.Namespace) -> int:
    """Write the report, with --figures also pictures and tables, and say where."""
    from tercet.experiments import report as pages

    if options.figures:
        from tercet.experiments import figures

        for path in figures.write(options.out):
            print(path)
    print(f"report: {pages.write(options.out)}")
    return CERTIFIED


def certificate_of(c: Certificate) -> dict[str, Any]:
    """The certificate for machines."""
    names = (
        "chi1", "chi2", "chi3", "eps1", "eps2", "eps3", "zeta", "order", "terms", "relative", "converged", "strict",
        "lowest", "condition", "error_f", "digits", "rounding_f", "rounding_g", "involved", "way_down", "ray",
    )  # fmt: skip
    plain = {name: None if (value := getattr(c, name)) != value else value for name in names}
    finite = {name: None if value in (np.inf, -np.inf) else value for name, value in plain.items()}
    return {**finite, "holds": c.holds, "verdict": c.verdict, "how": c.how}


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
        "certificate": certificate_of(result.certificate),
        "counts": counts,
        "x": x,
        **{name: getattr(result, name) for name in ("rounds", "bytes_read", "retries") if result.rounds},
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
