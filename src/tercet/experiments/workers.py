"""Runs in processes of their own: `Pool` hands tasks out, `main` is what such a process does.

A worker is a Python of its own (no fork, so that threads of JAX or BLAS cannot hang) with one thread for linear algebra
(so that a run does not depend on the number of cores). It reads a task a line, answers a record a line, and ends when
its input ends, also when the comparison was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import tercet
from tercet.datasets.catalogue import Dataset, load, load_file
from tercet.experiments import references, runs
from tercet.experiments.runs import Task

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Where:
    """Where workers find their data."""

    data_dir: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    def load(self, name: str) -> Dataset:
        """A data set of the catalogue or one of the user's files."""
        return load_file(name, self.files[name]) if name in self.files else load(name, self.data_dir)


class DiedError(Exception):
    """A worker's process ended in the middle of a task."""


class Worker:
    """A process that answers tasks one by one."""

    def __init__(self, where: Where):
        self.where = where
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()  # a process that is just being started is not overlooked by `close`
        self.closed = False

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """The answer to a task; DiedError where the process ended instead."""
        process = self.ready()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # ValueError: closed by another thread
            line = b""
        if not line.endswith(b"\n"):
            code = process.wait()
            self.end()
            raise DiedError(
                f"the process of the run ended with code {code}" + (" (out of memory?)" if code == -9 else "")
            )
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise OSError(answer["failure"])
        return answer

    def ready(self) -> subprocess.Popen[bytes]:
        """The process, started where there is none."""
        with self.lock:
            if self.closed:
                raise DiedError("the comparison has ended")
            self.process = self.process or self.begin()
            return self.process

    def begin(self) -> subprocess.Popen[bytes]:
        """Start the process: its own session, so that Ctrl-C reaches the comparison only."""
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tercet.experiments.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONPATH": path},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"data_dir": self.where.data_dir, "files": self.where.files}).encode() + b"\n")
        return process

    def close(self) -> None:
        """End the process now, and let no other begin."""
        with self.lock:
            self.closed = True
            if self.process is not None:
                self.process.kill()  # the thread that waits for its answer sees the end

    def end(self) -> None:
        """End the process now; its pipes are closed by the one thread that uses them."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):  # what could not be flushed to a process that is gone
                    if pipe is not None:
                        pipe.close()
            self.process = None


class Pool:
    """Workers that share a list of tasks; use it in a `with`."""

    def __init__(self, jobs: int, where: Where):
        self.workers = [Worker(where) for _ in range(jobs)]
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.close()
        for thread in self.threads:
            thread.join()
        for worker in self.workers:
            worker.end()

    def answers(
        self, tasks: Iterable[dict[str, Any]], tick: Callable[[], None] = lambda: None
    ) -> Iterable[tuple[dict[str, Any], dict[str, Any] | DiedError]]:
        """Each task with its answer, as they come; `tick` is called now and then while waiting."""
        waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        count = 0
        for task in tasks:
            waiting.put(task)
            count += 1
        self.threads = [threading.Thread(target=serve, args=(worker, waiting, done)) for worker in self.workers]
        for thread in self.threads:
            thread.daemon = True
            thread.start()
        for _ in range(count):
            yield self.next(done, tick)
        for thread in self.threads:
            thread.join()

    def next(self, done: queue.SimpleQueue[Any], tick: Callable[[], None]) -> Any:
        """The next answer; a failure of the machinery itself is raised here."""
        while True:
            try:
                found = done.get(timeout=0.2)
            except queue.Empty:
                tick()
                continue
            if isinstance(found, BaseException):
                raise found
            return found


def serve(worker: Worker, waiting: queue.SimpleQueue[dict[str, Any]], done: queue.SimpleQueue[Any]) -> None:
    """Let a worker work until nothing is waiting."""
    while True:
        try:
            task = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((task, worker.ask(task)))
        except DiedError as error:
            done.put((task, error))
            if worker.closed:
                return
        except BaseException as error:  # such as no Python to start: told in the main thread
            done.put(error)
            return


# --- the worker's side


class Desk:
    """What a worker keeps between tasks: the last data set and the last problem."""

    def __init__(self, where: Where):
        self.where = where
        self.dataset: Dataset | None = None
        self.problem: tuple[Any, Any] = (None, None)

    def answer(self, task: dict[str, Any]) -> dict[str, Any]:
        """The record of a run, or of the minima of a data set and penalty; data that is gone is no fault of a run."""
        try:
            dataset, problem = self.take(task["dataset"], task["l2"], task["loss"])
        except (OSError, ValueError) as error:
            return {"failure": str(error)}
        if "ends" in task:
            return references.find(task, problem)
        return runs.run(Task.from_json(task), dataset, problem)

    def take(self, name: str, l2: float, loss: str) -> tuple[Dataset, tercet.LinearModel]:
        """The data set and the problem, the last ones again where they are the same."""
        if self.dataset is None or self.dataset.name != name:
            self.dataset, self.problem = self.where.load(name), (None, None)
        if self.problem[0] != (l2, loss):
            self.problem = ((l2, loss), runs.problem_of(self.dataset, l2, loss))
        return self.dataset, self.problem[1]


def main() -> None:
    """Read tasks from standard input, answer on standard output; whatever a method prints goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    lines = sys.stdin.buffer
    desk = Desk(Where(**json.loads(lines.readline())))
    for line in lines:
        answer = desk.answer(json.loads(line))
        try:
            answers.write(json.dumps(answer, allow_nan=False).encode() + b"\n")
            answers.flush()
        except OSError:
            return  # the comparison is gone


if __name__ == "__main__":
    main()
