"""Samples in memory: sizes beyond the largest are all terms, and B and T stay on it."""

from dataclasses import replace

import numpy as np

from tercet.records import Sizes
from tercet.sampling import Progressive
from tercet.sampling.bounded import InMemory
from tercet.sampling.rules import Outlook

N, D, MOST = 1_000_000, 10, 5000


def look(m, share, hessian=None, missed=0.0, noisy=False):
    sizes = Sizes(m, m, hessian or m, hessian or m)
    return Outlook(N, D, 3, sizes, 0.1, share, noisy, missed=missed)


def test_a_run_goes_from_sample_to_sample_to_the_largest_and_then_to_all_terms():
    rule, outlook, seen = InMemory(Progressive(), MOST), look(200, 100.0), []
    assert rule.first(N, D) == Sizes(200, 200, 200, 200)
    while outlook.sizes.value < N:
        outlook = replace(outlook, sizes=rule.next(outlook))
        seen.append(outlook.sizes)
    assert [s.value for s in seen] == [600, 1800, MOST, N]
    assert seen[-1] == Sizes(N, N, MOST, MOST)


def test_the_largest_sample_is_solved_before_all_terms_are_read():
    rule = InMemory(Progressive(), MOST)
    assert rule.next(look(MOST, 5.0)).value == MOST
    assert rule.next(look(MOST, 30.0)).value == N
    assert rule.next(look(MOST, 5.0, noisy=True)).value == N


def test_b_goes_over_to_all_terms_where_the_sample_is_small_or_leaves_too_much():
    assert InMemory(Progressive(), 499).next(look(499, 100.0)) == Sizes(N, N, N, N)
    rule = InMemory(Progressive(), MOST)
    assert rule.next(look(N, 0.0, hessian=MOST, missed=0.1)) == Sizes(N, N, MOST, MOST)
    assert rule.next(look(N, 0.0, hessian=MOST, missed=np.inf)).hessian == N


def test_no_sample_is_larger_than_what_is_there():
    rule = InMemory(Progressive(), 50)
    assert rule.first(N, D) == Sizes(50, 50, 50, 50)
    assert rule.first(60, D) == Sizes(60, 60, 60, 60)
    assert (rule.nested, rule.replacement) == (True, False)
