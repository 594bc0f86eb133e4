"""Reading ahead: a thread fills a short queue while the caller works on what came before."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, TypeVar

from tercet.watch import Look, unwatched

T = TypeVar("T")
DEPTH = 3  # items that wait
PAUSE = 0.1  # seconds between two looks at the clock, or at whether anybody still waits
ITEM, ERROR, END = range(3)


def ahead(items: Iterator[T], look: Look = unwatched, depth: int = DEPTH) -> Generator[T, None, None]:
    """The same items, made by a thread, at most `depth` of them ahead; what it raises is raised here.

    `look` is called while nothing comes, so that a read that hangs does not outlast a deadline. The thread ends when
    the iterator is closed.
    """
    queue: Queue[tuple[int, Any]] = Queue(depth)
    ended = Event()

    def put(kind: int, item: Any) -> bool:
        while not ended.is_set():
            try:
                queue.put((kind, item), timeout=PAUSE)
                return True
            except Full:
                continue
        return False

    def fill() -> None:
        try:
            for item in items:
                if not put(ITEM, item):
                    return
            put(END, None)
        except BaseException as error:  # handed to the caller
            put(ERROR, error)

    def drain() -> Generator[T, None, None]:
        Thread(target=fill, daemon=True, name="tercet-reads-ahead").start()
        try:
            while True:
                look()
                try:
                    kind, item = queue.get(timeout=PAUSE)
                except Empty:
                    continue
                if kind == END:
                    return
                if kind == ERROR:
                    raise item
                yield item
        finally:
            ended.set()

    return drain()
