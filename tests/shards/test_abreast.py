"""Work by threads: answers in order, errors in their place, no thread left behind, and no wait without a look at the
clock."""

import threading
import time

import pytest

from tercet.shards.abreast import abreast


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "tercet-shards"]


def ended():
    deadline = time.monotonic() + 5
    while workers() and time.monotonic() < deadline:
        time.sleep(0.01)
    return workers() == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_answers_come_in_order_and_the_threads_end(threads):
    def work(k, over):
        time.sleep(0.001 * (k % 5))
        return k * k

    assert list(abreast(work, range(40), threads)) == [k * k for k in range(40)]
    assert ended()


@pytest.mark.timeout(30)
def test_one_item_waits_while_another_is_worked_on():
    both = threading.Barrier(2)
    assert list(abreast(lambda k, over: both.wait(20) >= 0, range(4), 2)) == [True] * 4


@pytest.mark.timeout(30)
def test_not_more_is_begun_than_twice_the_threads():
    begun = []
    answers = abreast(lambda k, over: begun.append(k), range(50), 3)
    next(answers)
    time.sleep(0.3)
    assert len(begun) == 6
    answers.close()
    assert ended()


@pytest.mark.timeout(30)
def test_what_is_raised_comes_after_the_answers_before_it():
    def work(k, over):
        if k >= 2:
            raise OSError(f"gone {k}")
        time.sleep(0.05)
        return k

    answers = abreast(work, range(6), 3)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(OSError, match="gone 2"):
        next(answers)
    assert ended()


@pytest.mark.timeout(30)
def test_work_that_hangs_does_not_outlast_the_clock_and_is_told():
    told = threading.Event()

    def work(k, over):
        while not over():
            time.sleep(0.01)
        told.set()

    def look():
        if time.monotonic() > begun + 0.3:
            raise TimeoutError

    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        next(abreast(work, range(3), 1, look))
    assert time.monotonic() - begun < 5
    assert told.wait(5)
