"""Work on several shards at a time by threads: while one of them reads another computes, and answers come in order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Lock, Semaphore, Thread
from typing import TypeVar

from tercet.watch import Look, unwatched

A = TypeVar("A")
T = TypeVar("T")
PAUSE = 0.1  # seconds between two looks at the clock
Over = Callable[[], bool]  # whether nobody waits for an answer any more


def abreast(
    work: Callable[[A, Over], T], items: Sequence[A], threads: int, look: Look = unwatched
) -> Generator[T, None, None]:
    """work(item, over) for each of some items, in their order; what it raises is raised where its answer would come.

    A thread does all of an item, so that what it reads is in its processor's cache when it is summed. At most twice as
    many items as threads are begun before their answers are taken. `look` is called while nothing comes: work that
    hangs does not outlast a deadline, since its thread is left to itself. Work that looks at `over` ends early then.
    """
    futures: list[Future[T]] = [Future() for _ in items]
    waiting = iter(zip(items, futures, strict=True))
    slots, lock, ended = Semaphore(2 * threads), Lock(), False

    def over() -> bool:
        return ended

    def serve() -> None:
        while slots.acquire() and not ended:
            with lock:
                item, future = next(waiting, (None, None))
            if item is None or future is None:
                return
            try:
                future.set_result(work(item, over))
            except BaseException as error:  # handed to the caller
                future.set_exception(error)

    def drain() -> Generator[T, None, None]:
        nonlocal ended
        for _ in range(min(threads, len(items))):
            Thread(target=copy_context().run, args=(serve,), daemon=True, name="tercet-shards").start()
        try:
            for future in futures:
                look()
                while not future.done():
                    wait([future], PAUSE)
                    look()
                yield future.result()
                slots.release()
        finally:
            ended = True
            slots.release(threads)

    return drain()
