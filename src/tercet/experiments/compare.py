"""The driver of a comparison: which runs are missing in the folder, who makes them, and what they are measured from.

Three rounds, each of which goes on where it was interrupted: grids are tuned, the runs are made, the minima are found.
A grid is tuned on the first kind of start with the first `tune_seeds` seeds, at the full budget; the point with the
lowest mean of the final objective is kept (gaps on one problem differ from that by a constant), ties go to the first.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import scipy

import tercet
from tercet.datasets.catalogue import Dataset, load, load_file
from tercet.experiments import references, runs, spec
from tercet.experiments.methods import Plan
from tercet.experiments.runs import Task
from tercet.experiments.spec import Comparison
from tercet.experiments.store import Record, Store, key_of, read
from tercet.experiments.workers import DiedError, Pool, Where


@dataclass(frozen=True)
class Size:
    """What the driver has to know of a data set."""

    n: int
    d: int
    loss: str
    info: dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What is in the folder now."""

    folder: Path
    runs: int
    failed: int
    new: int


@dataclass(eq=False)
class Progress:
    """A line on a terminal: how far, how many failed, how long; nothing where there is no terminal."""

    stream: TextIO
    total: int = 0
    done: int = 0
    failed: int = 0
    doing: str = ""
    started: float = field(default_factory=time.monotonic)
    begun: int = 0
    pause: float = 0.2
    shown: float = 0.0

    def enter(self, doing: str, total: int, done: int) -> None:
        """Begin a round, of which some is done already."""
        self.doing, self.total, self.done, self.begun, self.started = doing, total, done, done, time.monotonic()
        self.show()

    def step(self, failed: bool) -> None:
        """One more."""
        self.done, self.failed = self.done + 1, self.failed + failed
        self.show()

    def show(self) -> None:
        """Write over the line, if it is time."""
        now = time.monotonic()
        if not self.stream.isatty() or (now < self.shown + self.pause and self.done < self.total):
            return
        self.shown = now
        spent, made = now - self.started, self.done - self.begun
        left = f", about {clock(spent / made * (self.total - self.done))} left" if made else ""
        failed = f"  {self.failed} failed" if self.failed else ""
        self.stream.write(f"\r\x1b[2K{self.doing} {self.done}/{self.total}{failed}  {clock(spent)}{left}")
        self.stream.flush()

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self.shown and self.stream.isatty():
            self.stream.write("\r\x1b[2K")
            self.stream.flush()

    def notice(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        self.stream.write(f"tercet: {text}\n")
        self.stream.flush()


def clock(seconds: float) -> str:
    """Seconds as 12 s, 3 min or 1.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def compare(
    comparison: Comparison,
    folder: Path,
    *,
    jobs: int = 2,
    data_dir: str | None = None,
    download: bool = False,
    stream: TextIO | None = None,
) -> Outcome:
    """Make all runs of a comparison that the folder does not have yet, and find the minima.

    Ctrl-C ends it with every finished run stored; the same call goes on. Runs with the same seed are the same in every
    field but the seconds, unless `max_seconds` cuts them short.
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ValueError(f"compare(jobs={jobs!r}): give a positive whole number of processes.")
    progress = Progress(stream or sys.stderr)
    sizes = look(comparison, data_dir, download)
    settings = {
        **comparison.as_json(),
        "data_info": {name: size.info for name, size in sizes.items()},
        "versions": versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    where = Where(data_dir, dict(comparison.files))
    with Store(Path(folder), settings, progress.notice) as store, Pool(jobs, where) as pool:
        before = len(store.records["runs.jsonl"])
        try:
            drive(Driver(comparison, sizes, store, pool, progress))
        finally:
            progress.clear()
        made = store.records["runs.jsonl"]
        failed = sum(1 for record in made if record["error"] is not None)
        return Outcome(Path(folder), len(made), failed, len(made) - before)


def look(comparison: Comparison, data_dir: str | None, download: bool) -> dict[str, Size]:
    """Load each data set once, so that what is missing is told before any run."""
    files = dict(comparison.files)
    out = {}
    for name in comparison.data:
        data = load_file(name, files[name]) if name in files else load(name, data_dir, download)
        runs.problem_of(data, 0.0, comparison.loss)  # refuses targets that do not suit the loss
        out[name] = Size(data.X.shape[0], data.X.shape[1], runs.loss_name(data, comparison.loss), info(data))
    return out


def info(data: Dataset) -> dict[str, Any]:
    """What is known of a data set, for the report; its digest also tells when the data is another one."""
    return {name: getattr(data.info, name) for name in ("n", "d", "labels", "source", "license", "digest")}


def versions() -> dict[str, str]:
    """What the runs are made with."""
    return {
        "tercet": tercet.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


@dataclass(eq=False)
class Driver:
    """A comparison under way."""

    comparison: Comparison
    sizes: dict[str, Size]
    store: Store
    pool: Pool
    progress: Progress

    def problems(self) -> Iterator[tuple[str, float, str]]:
        """Data set, l2 on the mean, and the note on lambda; each once."""
        seen = set()
        for name in self.comparison.data:
            for text in self.comparison.l2:
                l2, note = spec.penalty(text, self.sizes[name].n)
                if (name, l2) not in seen:
                    seen.add((name, l2))
                    yield name, l2, note

    def starts(self) -> Iterator[tuple[str, int]]:
        """Kind of start and seed."""
        for start in self.comparison.starts:
            for seed in range(self.comparison.seeds):
                yield start, seed

    def task(self, problem: tuple[str, float, str], start: tuple[str, int], plan: Plan) -> Task:
        """One run."""
        c, (name, l2, note) = self.comparison, problem
        return Task(name, l2, *start, plan, c.max_epochs, c.max_seconds, c.loss, note)

    def tuning(self) -> Iterator[Task]:
        """The runs that decide the grids."""
        trials = [(self.comparison.starts[0], seed) for seed in range(self.comparison.tune_seeds)]
        for problem in self.problems():
            for plan in self.comparison.methods:
                for choice in plan.choices():
                    for start in trials:
                        yield self.task(problem, start, choice)

    def runs(self) -> Iterator[tuple[Task, str]]:
        """The runs of the comparison, tuned, each with the label of the grid point that it is one of."""
        for problem in self.problems():
            for plan in self.comparison.methods:
                chosen = self.best(problem, plan)
                for start in self.starts():
                    yield self.task(problem, start, replace(chosen, label=plan.label)), chosen.label

    def best(self, problem: tuple[str, float, str], plan: Plan) -> Plan:
        """The point of the grid with the lowest mean objective at the end; the plan itself where it has no grid."""
        choices = list(plan.choices())
        ends: dict[str, list[float]] = {choice.label: [] for choice in choices}
        for record in self.store.records["tuning.jsonl"]:
            key = record["key"]
            if (key["dataset"], key["l2"]) == problem[:2] and key["method"] in ends:
                ends[key["method"]].append(np.inf if record["fun"] is None else record["fun"])
        return min(choices, key=lambda choice: float(np.mean(ends[choice.label])), default=plan)


def drive(driver: Driver) -> None:
    """The three rounds."""
    store, progress = driver.store, driver.progress
    make(driver, "tuning.jsonl", "tuning", [(task, "") for task in driver.tuning()])
    tasks = list(driver.runs())
    adopt(driver, tasks)
    make(driver, "runs.jsonl", "runs", tasks)
    there = {(line["dataset"], line["l2"]) for line in store.records["references.jsonl"]}
    wanted = [problem for problem in driver.problems() if problem[:2] not in there]
    progress.enter("minima", len(wanted) + len(there), len(there))
    requests = [
        references.request(
            name,
            l2,
            driver.comparison.loss,
            list(driver.starts()),
            [r for r in store.records["runs.jsonl"] if (r["key"]["dataset"], r["key"]["l2"]) == (name, l2)],
        )
        for name, l2, _ in wanted
    ]
    for task, answer in driver.pool.answers(requests, progress.show):
        if isinstance(answer, DiedError):
            raise OSError(f"the minima of {task['dataset']}, l2 = {task['l2']:g} could not be found: {answer}.")
        store.append("references.jsonl", answer)
        progress.step(False)


def adopt(driver: Driver, tasks: list[tuple[Task, str]]) -> None:
    """A run that was made for tuning is the run itself: same seed, same settings, same budget."""
    there = {key_of(record) for record in driver.store.records["runs.jsonl"]}
    wanted = {
        (*key[:-1], label): task
        for task, label in tasks
        if label != task.plan.label and (key := tuple(task.key.values())) not in there
    }
    if not wanted:
        return
    for record in read(driver.store.folder, "tuning.jsonl"):
        if (task := wanted.get(key_of(record))) is not None:
            record["key"], choice = task.key, record["key"]["method"]
            driver.store.append("runs.jsonl", labeled(driver, record, choice))


def labeled(driver: Driver, record: Record, choice: str) -> Record:
    """A run with the note on what its settings were tuned over."""
    if choice in ("", record["key"]["method"]):
        return record
    c = driver.comparison
    seeds = "seed 0" if c.tune_seeds == 1 else f"seeds 0 to {c.tune_seeds - 1}"
    note = f"{choice}: lowest mean objective over start {c.starts[0]}, {seeds}, of all points of the grid"
    return {**record, "settings": {**record["settings"], "tuned": note}}


def make(driver: Driver, file: str, doing: str, tasks: list[tuple[Task, str]]) -> None:
    """Make the runs that the file does not have; each is stored as soon as it is finished."""
    store, progress = driver.store, driver.progress
    there = {key_of(record) for record in store.records[file]}
    left = [(task, label) for task, label in tasks if tuple(task.key.values()) not in there]
    labels = {tuple(task.key.values()): label for task, label in left}
    progress.enter(doing, len(tasks), len(tasks) - len(left))
    asked = [task.as_json() for task, _ in left]
    for found, answer in driver.pool.answers(asked, progress.show):
        task = Task.from_json(found)
        record = answer if isinstance(answer, dict) else lost(driver, task, answer)
        store.append(file, labeled(driver, record, labels[tuple(task.key.values())]))
        progress.step(record["error"] is not None)


def lost(driver: Driver, task: Task, error: DiedError) -> Record:
    """The row of a run whose process died."""
    size = driver.sizes[task.dataset]
    return runs.lost(task, size.n, size.d, size.loss, f"{type(error).__name__}: {error}")
