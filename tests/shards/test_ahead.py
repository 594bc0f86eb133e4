"""Reading ahead: the same items, errors handed over, no thread left behind, and no wait without a look at the clock."""

import threading
import time

import pytest

from tercet.shards.ahead import ahead


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "tercet-reads-ahead"]


@pytest.mark.timeout(30)
def test_items_come_in_order_and_the_thread_ends():
    assert list(ahead(iter(range(100)))) == list(range(100))
    deadline = time.monotonic() + 5
    while readers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert readers() == []


@pytest.mark.timeout(30)
def test_no_more_than_the_depth_is_read_before_it_is_wanted():
    made = []

    def items():
        for k in range(50):
            made.append(k)
            yield k

    stream = ahead(items(), depth=2)
    assert next(stream) == 0
    time.sleep(0.3)
    assert len(made) <= 5
    stream.close()


@pytest.mark.timeout(30)
def test_what_the_reader_raises_is_raised_after_what_came_before_it():
    def items():
        yield 1
        raise OSError("gone")

    stream = ahead(items())
    assert next(stream) == 1
    with pytest.raises(OSError, match="gone"):
        next(stream)


@pytest.mark.timeout(30)
def test_a_read_that_hangs_does_not_outlast_the_clock():
    release = threading.Event()

    def items():
        release.wait(20)
        yield 1

    def look():
        if time.monotonic() > begun + 0.3:
            raise TimeoutError

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        next(ahead(items(), look))
    assert time.monotonic() - begun < 5
    release.set()
