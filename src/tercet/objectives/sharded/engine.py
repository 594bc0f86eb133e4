"""Who reads the shards: this process, by some threads. A cluster does it in `tercet.dask`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from threading import local
from time import perf_counter
from typing import Any, Protocol

from tercet.shards import Shards
from tercet.shards.abreast import Over, abreast
from tercet.shards.layout import Block, Layout, Room
from tercet.threads import one_thread
from tercet.watch import Look, unwatched


class Work(Protocol):
    """A pure function of the blocks of one shard."""

    @property
    def name(self) -> str:
        """What it makes, in a word."""
        ...

    def __call__(self, blocks: Iterator[Block]) -> Any:
        """Its answer for the shard."""
        ...


@dataclass(eq=False)
class Traffic:
    """What a run has read so far; written in place."""

    rounds: int = 0  # passes over all shards
    bytes: int = 0
    retries: int = 0  # tasks that were done again, because a worker was lost or a read failed
    seconds: float = 0.0  # within passes

    def as_dict(self) -> dict[str, int]:
        """As `Result` has it."""
        return {"rounds": self.rounds, "bytes_read": self.bytes, "retries": self.retries}


class Engine(Protocol):
    """Work on every shard, with results in the order of the shards: what is added up has the same bits everywhere."""

    @property
    def layout(self) -> Layout:
        """The shapes of the shards."""
        ...

    def each(self, work: Work, traffic: Traffic, only: Sequence[int] | None = None) -> Iterator[Any]:
        """The results of all shards, or of some, in their order."""
        ...

    def watching(self, look: Look) -> Engine:
        """The same, which calls `look` while it waits."""
        ...

    def digests(self, traffic: Traffic) -> list[str]:
        """Of the numbers of every shard."""
        ...


@dataclass(frozen=True, eq=False)
class Local:
    """This process. Each thread reads and sums whole shards, as many at once as there are processors, and at least two:
    while one waits for the disk the other computes.

    Sums of a shard are made by one thread, also within BLAS, and added up in the order of the shards: the same bits on
    any number of processors.
    """

    shards: Shards
    look: Look = unwatched
    threads: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))

    @property
    def layout(self) -> Layout:
        """The shapes of the shards."""
        return self.shards.layout

    def watching(self, look: Look) -> Local:
        """The same, which calls `look` while it waits."""
        return replace(self, look=look)

    def each(self, work: Work, traffic: Traffic, only: Sequence[int] | None = None) -> Iterator[Any]:
        """The results in order."""
        chosen = range(len(self.shards)) if only is None else only
        rooms = local()

        def one(i: int, over: Over) -> Any:
            rooms.own = getattr(rooms, "own", None) or Room()
            return work(takewhile(lambda _: not over(), self.shards.blocks(i, rooms.own)))

        with one_thread(), timed(traffic, self.layout, only):
            yield from abreast(one, chosen, self.threads, self.look)

    def digests(self, traffic: Traffic) -> list[str]:
        """As the manifest has them, else computed: one pass."""
        from tercet.objectives.sharded.survey import Digest

        manifest = self.shards.manifest
        return list(self.each(Digest(), traffic)) if manifest is None else [e.digest for e in manifest.entries]


@contextmanager
def timed(traffic: Traffic, layout: Layout, only: Sequence[int] | None) -> Iterator[None]:
    """Count a pass when it has ended, and its bytes."""
    started = perf_counter()
    yield
    traffic.seconds += perf_counter() - started
    traffic.rounds += only is None
    traffic.bytes += layout.bytes if only is None else sum(layout.extents[i].bytes for i in only)


# seen on the terminal -------------------------------------------------------------------------------------------------


def on_terminal() -> Callable[[str], None] | None:
    """Writes a line to standard error, where that is a terminal."""
    try:
        shows = sys.stderr.isatty()
    except (AttributeError, ValueError):
        shows = False
    return (lambda text: print("\r\x1b[2K" + text, file=sys.stderr, flush=True)) if shows else None


def line_of(traffic: Traffic, name: str, layout: Layout, seconds: float, told: str) -> str:
    """One pass, in a line."""
    rate = layout.bytes / max(seconds, 1e-9) / 1e9
    rows = f"{layout.n:,} rows"
    return f"pass {traffic.rounds}  {name}  {rows}  {rate:.2f} GB/s  {seconds:.1f} s{told}  retries {traffic.retries}"
