"""Who reads the shards: this process, with threads that read ahead. A cluster does it in `tercet.dask`."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

from tercet.shards import Shards
from tercet.shards.ahead import ahead
from tercet.shards.layout import Block, Layout, Room
from tercet.threads import one_thread
from tercet.watch import Look, unwatched

PAUSE = 0.1  # seconds between two looks at the clock


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
    """This process. A thread reads ahead; with more than two processors several shards are worked on at once.

    Sums of a shard are made by one thread, also within BLAS, and added up in the order of the shards: the same bits on
    any number of processors.
    """

    shards: Shards
    look: Look = unwatched
    threads: int = field(default_factory=lambda: max(1, (os.cpu_count() or 1) // 2))

    @property
    def layout(self) -> Layout:
        """The shapes of the shards."""
        return self.shards.layout

    def watching(self, look: Look) -> Local:
        """The same, which calls `look` before each block."""
        return replace(self, look=look)

    def each(self, work: Work, traffic: Traffic, only: Sequence[int] | None = None) -> Iterator[Any]:
        """The results in order."""
        chosen = range(len(self.shards)) if only is None else only
        with one_thread(), timed(traffic, self.layout, only):
            yield from self.alone(work, chosen) if min(self.threads, len(chosen)) < 2 else self.abreast(work, chosen)

    def alone(self, work: Work, chosen: Sequence[int]) -> Iterator[Any]:
        """One shard after the other, and the reading goes on from one to the next."""
        room = Room()
        blocks = ahead((block for i in chosen for block in self.shards.blocks(i, room)), self.look)
        try:
            block = next(blocks, None)
            while block is not None:
                rest = Rest(block, blocks)
                yield work(iter(rest))
                block = rest.beyond
        finally:
            blocks.close()

    def abreast(self, work: Work, chosen: Sequence[int]) -> Iterator[Any]:
        """Some shards at a time, each with a thread of its own that reads ahead."""

        def one(i: int) -> Any:
            return work(ahead(self.shards.blocks(i, Room()), self.look))

        waiting: deque[Future[Any]] = deque()
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="tercet-shards")
        try:
            for i in chosen:
                waiting.append(pool.submit(one, i))
                if len(waiting) > self.threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def digests(self, traffic: Traffic) -> list[str]:
        """As the manifest has them, else computed: one pass."""
        from tercet.objectives.sharded.survey import Digest

        manifest = self.shards.manifest
        return list(self.each(Digest(), traffic)) if manifest is None else [e.digest for e in manifest.entries]


@dataclass(eq=False)
class Rest:
    """The blocks of one shard from a stream of all, and the first block beyond it."""

    first: Block
    blocks: Iterator[Block]
    beyond: Block | None = None

    def __iter__(self) -> Iterator[Block]:
        yield self.first
        for block in self.blocks:
            if block.shard != self.first.shard:
                self.beyond = block
                return
            yield block


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
