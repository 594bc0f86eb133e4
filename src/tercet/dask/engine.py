"""Work on every shard by the workers of a Dask cluster, with results in the order of the shards.

A task is a pure function of its shards and of x, so that Dask can do it again wherever a worker is lost. Nothing waits
without a deadline: the clock of the run is looked at while tasks are under way, a cluster that is gone is seen, and one
that does nothing for `patience` seconds is given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from queue import Empty, Queue
from threading import local
from time import perf_counter, sleep
from typing import Any
from uuid import uuid4

from distributed import Client, Future
from distributed.comm import parse_address, parse_host_port

from tercet.objectives.sharded.engine import Traffic, Work, timed
from tercet.objectives.sharded.survey import Digest
from tercet.shards import Shards
from tercet.shards.layout import Block, Layout, Room
from tercet.shards.shards import SHARD
from tercet.threads import one_thread
from tercet.watch import Look, unwatched

PAUSE = 0.1  # seconds between two looks at the clock and at the cluster
PATIENCE = 300.0  # seconds without any task that ends, before a cluster is given up
TASKS = 4  # at least, for each thread of the workers, before small shards share one
RETRIES = 2  # of a task that raises: a read may fail once
GONE = ("closed", "closing")
ROOMS = local()  # of each thread of a worker, for the tasks to come
LOST = 15.0  # seconds that a scheduler may be away


class ClusterError(RuntimeError):
    """The cluster is gone, or does nothing: the run ends with its best point, and `resume` goes on on another one."""


@dataclass(frozen=True, eq=False)
class Done:
    """What a task gives back: its result, or the text of a ValueError."""

    result: Any
    refused: str | None = None


def work_on(work: Work, blocks: Iterator[Block]) -> Done:
    """A task's work in a worker, on one thread."""
    try:
        with one_thread():
            return Done(work(blocks))
    except ValueError as error:
        return Done(None, str(error))


def on_shards(chosen: Sequence[int], shards: Shards, work: Work) -> list[Done]:
    """Work on some shards, which the worker opens itself."""
    ROOMS.own = getattr(ROOMS, "own", None) or Room()
    return [work_on(work, shards.blocks(i, ROOMS.own)) for i in chosen]


def joined(chosen: Sequence[int], sizes: Sequence[int], most: float) -> list[list[int]]:
    """Shards that follow each other, together while they have at most so many bytes."""
    groups: list[list[int]] = []
    room = 0.0
    for i, size in zip(chosen, sizes, strict=True):
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(i)
        room -= size
    return groups


@dataclass(frozen=True, eq=False)
class Cluster:
    """The workers of a Dask cluster, each of which can open the shards."""

    shards: Any  # Shards, or Chunks
    client: Client
    look: Look = unwatched
    patience: float = PATIENCE
    cache: dict[str, Any] = field(default_factory=dict)  # what was sent to the cluster once

    @property
    def layout(self) -> Layout:
        """The shapes of the shards."""
        return self.shards.layout

    def watching(self, look: Look) -> Cluster:
        """The same, which calls `look` while it waits."""
        return replace(self, look=look)

    def digests(self, traffic: Traffic) -> list[str]:
        """As the manifest has them, else computed: one pass."""
        manifest = getattr(self.shards, "manifest", None)
        return list(self.each(Digest(), traffic)) if manifest is None else [e.digest for e in manifest.entries]

    def each(self, work: Work, traffic: Traffic, only: Sequence[int] | None = None) -> Iterator[Any]:
        """Results in the order of the shards, whenever they come."""
        chosen = list(range(len(self.layout.extents)) if only is None else only)
        alive(self.client)
        with timed(traffic, self.layout, only):
            groups = self.groups(chosen)
            futures = self.submit(work, groups)
            try:
                yield from self.gather(futures, groups)
                traffic.retries += again(self.client, futures)
            finally:
                for future in futures:
                    future.release()

    def groups(self, chosen: list[int]) -> list[list[int]]:
        """The shards of each task: one, or some small ones, since a task takes milliseconds of its own."""
        sizes = [self.layout.extents[i].bytes for i in chosen]
        if not isinstance(self.shards, Shards) or min(sizes) >= SHARD:
            return [[i] for i in chosen]
        return joined(chosen, sizes, min(SHARD, sum(sizes) / (TASKS * threads_of(self.client))))

    def submit(self, work: Work, groups: list[list[int]]) -> list[Future]:
        """The tasks of a pass, as one named group on the dashboard."""
        name = f"tercet-{work.name}-{uuid4().hex}"
        keys = [(name, group[0]) for group in groups]
        if isinstance(self.shards, Shards):
            how: dict[str, Any] = {"shards": self.shards, "work": work}
            return self.client.map(on_shards, groups, **how, key=keys, retries=RETRIES, pure=False)
        return self.shards.submit(self.client, work, [i for (i,) in groups], keys, RETRIES)

    def gather(self, futures: list[Future], groups: list[list[int]]) -> Iterator[Any]:
        """Results in order. Each future reports to a queue, which is waited for with a deadline."""
        ended: Queue[int] = Queue()
        for k, future in enumerate(futures):
            future.add_done_callback(lambda _, k=k: ended.put(k))
        ready: dict[int, list[Any]] = {}
        heard = perf_counter()
        for k in range(len(futures)):
            while k not in ready:
                self.look()
                try:
                    j = ended.get(timeout=PAUSE)
                except Empty:
                    self.still_there(heard, len(futures) - len(ready))
                    continue
                heard = perf_counter()
                more = [j, *(ended.get_nowait() for _ in range(ended.qsize()))]
                ready |= dict(zip(more, self.fetched([(groups[j], futures[j]) for j in more]), strict=True))
            yield from ready.pop(k)

    def still_there(self, heard: float, waiting: int) -> None:
        """ClusterError where the cluster is gone, or nothing was heard of it for too long."""
        alive(self.client)
        if perf_counter() - heard > self.patience:
            raise ClusterError(
                f"no task ended within {self.patience:g} seconds, {waiting} are waiting; are there workers? "
                "Start some, or raise patience."
            )

    def fetched(self, tasks: list[tuple[list[int], Future]]) -> list[list[Any]]:
        """What tasks that ended gave, in one message; ValueError for what one refused, else ClusterError that names the
        shards."""
        for group, future in tasks:
            where = f"shard {group[0]}" if len(group) == 1 else f"shards {group[0]} to {group[-1]}"
            if future.status == "cancelled":
                raise ClusterError(f"the task of {where} was cancelled; the cluster was restarted or shut down.")
            if future.status == "error":
                cause = future.exception(timeout=LOST)
                raise ClusterError(f"the task of {where} failed: {type(cause).__name__}: {cause}") from cause
        wanted = [future for _, future in tasks]
        answers: list[list[Done]] = self.client.sync(self.client._gather, wanted, callback_timeout=self.patience)
        for done in chain(*answers):
            if done.refused is not None:
                raise ValueError(done.refused)
        return [[done.result for done in answer] for answer in answers]


def threads_of(client: Client) -> int:
    """Of all workers, as the client heard last: nothing is waited for."""
    told = getattr(client, "_scheduler_identity", {})
    return max(1, told.get("total_threads") or sum(each["nthreads"] for each in told.get("workers", {}).values()))


def results(client: Client, futures: list[Future], patience: float) -> list[Any]:
    """What some tasks give, or raise; ClusterError where none of them ends for `patience` seconds."""
    ended, heard = 0, perf_counter()
    while (now := sum(future.done() for future in futures)) < len(futures):
        alive(client)
        ended, heard = (now, perf_counter()) if now > ended else (ended, heard)
        if perf_counter() - heard > patience:
            raise ClusterError(f"no chunk was made within {patience:g} seconds; are there workers?")
        sleep(PAUSE / 10)
    return [future.result(timeout=LOST) for future in futures]


def alive(client: Client) -> None:
    """ClusterError where the client has no cluster."""
    if client.status in GONE or getattr(client, "scheduler", None) is None:
        raise ClusterError(f"the client is {client.status}; connect to a cluster, and resume from the checkpoint.")


def again(client: Client, futures: list[Future]) -> int:
    """How many of these tasks were done again, as the scheduler has it: on lost workers, or after an error."""
    keys = [future.key for future in futures]

    def count(dask_scheduler: Any) -> int:
        tasks = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
        return sum(int(task.suspicious) + max(0, RETRIES - int(task.retries)) for task in tasks)

    try:
        return int(client.sync(client._run_on_scheduler, count, callback_timeout=LOST))
    except Exception:  # a count of what happened; the answer is there
        return 0


def connect(address: str, timeout: float = 30.0) -> Client:
    """A client of the cluster whose scheduler is at an address; ValueError where there is none."""
    try:
        scheme, place = parse_address(address)
        if scheme != "inproc":
            parse_host_port(place)  # a client that was made of no address would not let the program end for a minute
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"tercet.dask.connect({address!r}): no scheduler answers there ({error}).") from error
