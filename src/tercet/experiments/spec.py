"""What is compared: data sets, penalties, starts, seeds, methods and budgets, from a TOML file or from flags.

    data = ["svmguide3", "a9a:4000"]      # names of the catalogue, or of [files]
    l2 = [1e-3, "1e-3/n"]                 # l2/2 |x|^2 beside the mean; "1e-3/n" is lambda = 1e-3 beside the plain sum
    starts = ["0", "N", "3N"]             # zero, N(0, I), 3 N(0, I)
    seeds = 10
    methods = ["STM", "SCR", "SGD"]
    max_epochs = 100                      # by the paper's counting, which is the smaller one
    max_seconds = 60                      # of one run; makes runs depend on the machine

    [files]
    mine = "mine.libsvm"                  # a LIBSVM file with two labels

    [own.Mine]
    use = "module:attribute"              # a method object or what makes one; or a name of the catalogue
    settings = { step = 0.1 }
    grid = { step = [0.1, 1.0] }          # tuned on the first start, the best is kept

The paper's objective is 1/2 sum_i (...)^2 + lambda/2 |x|^2. Divided by n it is the mean of 1/2 (...)^2 plus
(lambda/n)/2 |x|^2, which is LinearModel with l2 = lambda/n exactly: no other factor enters.
"""

from __future__ import annotations

import math
import re
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tercet.datasets import catalogue
from tercet.experiments import methods
from tercet.experiments.methods import Plan
from tercet.objectives.losses import LOSSES

KEYS = (
    "data", "files", "l2", "loss", "starts", "seeds", "methods", "own", "max_epochs", "max_seconds", "tune_seeds",
    "title",
)  # fmt: skip
OWN_KEYS = ("use", "settings", "grid", "kind")
DEFAULT_METHODS = ["STM", "SCR", "SGD", "L-BFGS"]
NEWLINE = b"\n"
START = re.compile(r"0|(\d+(?:\.\d*)?|\.\d+)?N")


class SpecError(ValueError):
    """A comparison that cannot be run: the key that is wrong, and why."""

    def __init__(self, path: tuple[str, ...], text: str):
        super().__init__(f"{'.'.join(path)}: {text}.")
        self.path = path


@dataclass(frozen=True)
class Comparison:
    """All that decides which runs are made; equal comparisons make equal runs."""

    data: tuple[str, ...]
    l2: tuple[str, ...]
    methods: tuple[Plan, ...]
    starts: tuple[str, ...] = ("N",)
    seeds: int = 10
    loss: str = ""  # empty: the data set's own, which is the paper's for all but `degenerate`
    max_epochs: float = 100.0
    max_seconds: float | None = None
    tune_seeds: int = 2
    files: tuple[tuple[str, str], ...] = ()
    title: str = ""
    paper: bool = False  # whether this is the paper's experiment, whose report judges its claim

    def as_json(self) -> dict[str, Any]:
        """For comparison.json."""
        return {**methods.in_words(asdict(self)), "files": {name: Path(path).name for name, path in self.files}}


def penalty(text: str, n: int) -> tuple[float, str]:
    """l2 on the mean, and a note where the text speaks of the sum: lambda/2 |x|^2 beside a sum is lambda/n here."""
    number, over, _ = text.partition("/")
    if not over:
        return float(number), ""
    l2 = float(number) / n
    return l2, f"{float(number):g} on the sum = {l2:.3g} on the mean"


def scale_of(start: str) -> float:
    """How many times N(0, I) a start is: 0 for "0", 3 for "3N"."""
    return 0.0 if start == "0" else float(start[:-1] or 1)


# --- from a file or flags


def read(path: Path) -> Comparison:
    """The comparison in a TOML file; ValueError `file:line: key: what is wrong`."""
    return located(path, {})


def located(path: Path | None, flags: dict[str, Any]) -> Comparison:
    """The comparison in a file, where there is one, with the values of flags in place of its own."""
    text = "" if path is None else read_text(path)
    table = {} if path is None else parse(path, text)
    try:
        return build({**table, **flags}, Path() if path is None else path.parent)
    except SpecError as error:
        if path is None or error.path[0] in flags:
            raise ValueError(f"--{error.path[0].replace('_', '-')}: {str(error).partition(': ')[2]}") from error
        raise ValueError(f"{path}:{line_of(text, error.path)}: {error}") from error


def read_text(path: Path) -> str:
    """The text of a file, or a ValueError with the line that is no UTF-8."""
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{1 + raw.count(NEWLINE, 0, error.start)}: not UTF-8 text ({error.reason})."
        ) from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """The table of a TOML file; a syntax error is told with its line and the key there."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        lines = text.splitlines() or [""]
        number, column = (int(found[1]), f", column {found[2]}") if found else (len(lines), ", at the end")
        line = lines[min(number, len(lines)) - 1]
        # the error of an unclosed bracket shows on a later line than its key
        key = next(
            (m[1] for at in reversed(lines[:number]) if (m := re.match(r"\s*([\w.\"'-]+)\s*=", at))), line.strip()
        )
        told = re.sub(r"\s*\(at [^)]*\)", "", str(error))
        raise ValueError(f"{path}:{number}{column}: {key}: {told}.") from error


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The line that sets the key, or the nearest table or key around it; 1 where there is none."""
    table: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            if "=" not in line.partition("#")[0]:
                table = tuple(part.strip("\"' ") for part in header[1].split("."))
                here = table
            else:
                continue
        elif key := re.match(r"\s*([\w\"'.-]+)\s*=", line):
            here = (*table, *(part.strip("\"' ") for part in key[1].split(".")))
        else:
            continue
        same = sum(1 for _ in common(here, path))
        if same == len(here) and same > depth:
            best, depth = number, same
    return best


def common(a: tuple[str, ...], b: tuple[str, ...]) -> Any:
    """The parts that two paths begin with alike."""
    for x, y in zip(a, b, strict=False):
        if x != y:
            return
        yield x


# --- checks


def build(table: dict[str, Any], folder: Path) -> Comparison:
    """The comparison of a table; SpecError names the key. Files are looked for in `folder`."""
    for key in table:
        near(key, KEYS, (key,), "key")
    files = check_files(table.get("files", {}), folder)
    return Comparison(
        data=tuple(check_data(name, files) for name in words(table, "data", [])),
        l2=tuple(check_penalty(item) for item in items(table, "l2", [1e-3])),
        methods=check_methods(table),
        starts=tuple(check_start(item) for item in items(table, "starts", ["N"])),
        seeds=whole(table, "seeds", 10),
        loss="" if "loss" not in table else near(word(table, "loss"), tuple(LOSSES), ("loss",), "loss"),
        max_epochs=number(table, "max_epochs", 100.0),
        max_seconds=None if table.get("max_seconds") is None else number(table, "max_seconds", 0.0),
        tune_seeds=min(whole(table, "tune_seeds", 2), whole(table, "seeds", 10)),
        files=tuple(sorted(files.items())),
        title=word(table, "title") if "title" in table else "",
    )


def near(name: str, known: tuple[str, ...], path: tuple[str, ...], what: str) -> str:
    """The name itself where it is known, else a SpecError with the nearest ones."""
    try:
        return methods.nearest(name, known, what)
    except ValueError as error:
        raise SpecError(path, str(error)) from error


def items(table: dict[str, Any], key: str, default: list[Any]) -> list[Any]:
    """A list without repetitions that is not empty; a single value stands for a list of one."""
    found = table.get(key, default)
    found = found if isinstance(found, list) else [found]
    if not found:
        raise SpecError((key,), "give at least one")
    if len({str(item) for item in found}) < len(found):
        raise SpecError((key,), f"{found} names something twice")
    return found


def words(table: dict[str, Any], key: str, default: list[str]) -> list[str]:
    """A list of texts."""
    for item in (found := items(table, key, default)):
        if not isinstance(item, str):
            raise SpecError((key,), f"{item!r} is not a text; put names in quotes")
    return found


def word(table: dict[str, Any], key: str) -> str:
    """A text."""
    if not isinstance(table[key], str):
        raise SpecError((key,), f"{table[key]!r} is not a text; put it in quotes")
    return str(table[key])


def whole(table: dict[str, Any], key: str, default: int) -> int:
    """A whole number of at least 1."""
    found = table.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise SpecError((key,), f"{found!r} is not a whole number of at least 1")
    return found


def number(table: dict[str, Any], key: str, default: float) -> float:
    """A positive finite number."""
    found = table.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int | float) or not (0 < found < math.inf):
        raise SpecError((key,), f"{found!r} is not a positive number")
    return float(found)


def check_files(found: Any, folder: Path) -> dict[str, str]:
    """Names and paths of the user's files; a name of the catalogue is not given away."""
    if not isinstance(found, dict):
        raise SpecError(("files",), f"{found!r} is not a table of names and paths")
    out = {}
    for name, path in found.items():
        if name.partition(":")[0] in catalogue.CATALOGUE:
            raise SpecError(("files", name), f"{name!r} is a data set of the catalogue; choose another name")
        if not isinstance(path, str) or not (folder / path).is_file():
            raise SpecError(("files", name), f"there is no file {path!r}" + (f" in {folder}" if folder.name else ""))
        out[name] = str((folder / path).resolve())
    return out


def check_data(name: str, files: dict[str, str]) -> str:
    """A name of the catalogue or of the user's files."""
    if name not in files:
        try:
            catalogue.split(name)
        except ValueError as error:
            own = "A file of your own is named under [files], or as --data NAME=FILE"
            raise SpecError(("data",), f"{error} {own}") from error
    return name


def check_penalty(item: Any) -> str:
    """A number that is at least 0, or a text "number/n"."""
    text = item.replace(" ", "") if isinstance(item, str) else repr(item)
    head, over, tail = text.partition("/")
    try:
        value = float(head)
    except ValueError:
        value = math.nan
    if isinstance(item, bool) or not 0 <= value < math.inf or (over and tail != "n"):
        raise SpecError(("l2",), f'{item!r} is neither a number of at least 0 nor "number/n"')
    return f"{value!r}/n" if over else repr(value)


def check_start(item: Any) -> str:
    """0, N, or a multiple of N."""
    text = str(item)
    if isinstance(item, bool | float) or not START.fullmatch(text):
        raise SpecError(("starts",), f'{item!r} is not a start; give "0", "N" for N(0, I), or a multiple such as "3N"')
    return text


def check_methods(table: dict[str, Any]) -> tuple[Plan, ...]:
    """The methods that are listed, then those of [own] that are not; every one of them can be made."""
    own = table.get("own", {})
    if not isinstance(own, dict):
        raise SpecError(("own",), f"{own!r} is not a table; write [own.NAME]")
    mine = {label: own_plan(label, entry) for label, entry in own.items()}
    listed = words(table, "methods", DEFAULT_METHODS if not mine or "methods" not in table else [])
    plans = [mine.pop(label) if label in mine else catalogue_plan(label, tuple(own)) for label in listed]
    return (*plans, *mine.values())


def catalogue_plan(label: str, own: tuple[str, ...]) -> Plan:
    """A method of the catalogue."""
    return methods.plan(near(label, (*methods.CATALOGUE, *own), ("methods",), "method"))


def own_plan(label: str, entry: Any) -> Plan:
    """A method of the user's, or one of the catalogue with other settings."""
    if not isinstance(entry, dict):
        raise SpecError(("own", label), f"{entry!r} is not a table; write use = ... under [own.{label}]")
    for key in entry:
        near(key, OWN_KEYS, ("own", label, key), "key")
    if not isinstance(entry.get("use"), str):
        raise SpecError(("own", label, "use"), 'name the method with use = "module:attribute"')
    for key in ("settings", "grid"):
        if not isinstance(entry.get(key, {}), dict):
            raise SpecError(("own", label, key), f"{entry[key]!r} is not a table of names and values")
    for name, values in entry.get("grid", {}).items():
        if not isinstance(values, list) or not values:
            raise SpecError(("own", label, "grid", name), f"{values!r} is not a list of values")
    near(str(entry.get("kind", "method")), ("method", "scipy"), ("own", label, "kind"), "kind")
    plan = Plan(label, **entry)
    if math.prod(len(values) for values in plan.grid.values()) > methods.LARGEST_GRID:
        raise SpecError(("own", label, "grid"), f"the grid has more than {methods.LARGEST_GRID} points")
    for choice in list(plan.choices()) or [plan]:
        try:
            methods.make(choice)
        except Exception as error:  # whatever the user's own code raises
            told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise SpecError(("own", label, "use"), told.rstrip(".")) from error
    return plan
