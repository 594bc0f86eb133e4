"""Size rules: within bounds, never shrinking, and full in the end where they grow."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet.records import Sizes
from tercet.sampling import Adaptive, Fixed, Full, Growing, Progressive
from tercet.sampling.rules import Outlook, count

RULES = {
    "full": Full(),
    "fixed": Fixed(),
    "fixed counts": Fixed(gradient=7, hessian=3, third=1),
    "growing": Growing(),
    "growing slowly": Growing(start=1, factor=1.01),
    "adaptive": Adaptive(),
    "adaptive slowly": Adaptive(start=1, most=1.01),
    "progressive": Progressive(),
    "progressive slowly": Progressive(multiple=0.1, factor=1.01),
}
GROWS = [name for name in RULES if "fixed" not in name]


def outlook(sizes, n=1000, d=5, **changes):
    return replace(Outlook(n, d, 0, sizes, step=np.nan, noise_share=0.0, noisy=False), **changes)


def parts(sizes):
    return np.array([sizes.value, sizes.gradient, sizes.hessian, sizes.third])


@pytest.mark.parametrize("name", RULES)
@given(st.integers(1, 10**7), st.integers(1, 10**4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_first_sizes_are_whole_numbers_between_one_and_n(name, n, d):
    sizes = parts(RULES[name].first(n, d))
    assert all(isinstance(size, int) for size in sizes.tolist())
    assert np.all((sizes >= 1) & (sizes <= n))


@pytest.mark.parametrize("name", RULES)
@given(
    st.integers(1, 10**6),
    st.integers(1, 100),
    st.one_of(st.just(float("nan")), st.just(0.0), st.floats(1e-12, 1e3)),
    st.one_of(st.floats(0, 1e6), st.just(float("inf"))),
    st.booleans(),
    st.integers(0, 30),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_next_sizes_stay_within_bounds_and_never_shrink(name, n, d, step, noise_share, noisy, iteration):
    rule = RULES[name]
    sizes = rule.first(n, d)
    for _ in range(3):
        new = rule.next(outlook(sizes, n, d, step=step, noise_share=noise_share, noisy=noisy, iteration=iteration))
        assert np.all((parts(new) >= parts(sizes)) & (parts(new) <= n))
        assert all(isinstance(size, int) for size in parts(new).tolist())
        sizes = new


@pytest.mark.parametrize("name", GROWS)
@pytest.mark.parametrize(
    "demand",
    [{"noisy": True}, {"step": 1e-8, "noise_share": np.inf}, {"noisy": True, "iteration": 100}],
    ids=["noise", "small steps", "noise late in a run"],
)
def test_a_growing_rule_becomes_full_when_noise_or_the_step_demand_it(name, demand):
    rule, n = RULES[name], 1000
    sizes = rule.first(n, 5)
    for _ in range(1500):
        if sizes.is_full(n):
            break
        new = rule.next(outlook(sizes, n, **demand))
        assert parts(new).sum() > parts(sizes).sum()
        sizes = new
    assert sizes == Sizes(n, n, n, n)
    assert rule.next(outlook(sizes, n, **demand)) == sizes


@pytest.mark.parametrize("name", [n for n in RULES if "growing" not in n])
def test_nothing_grows_without_a_reason(name):
    rule = RULES[name]
    sizes = rule.first(10**6, 5)
    assert rule.next(outlook(sizes, 10**6, step=1e6)) == sizes


def test_full_is_all_terms():
    assert Full().first(17, 3) == Sizes(17, 17, 17, 17)
    assert Full().nested


def test_fixed_takes_fractions_and_counts_and_never_changes():
    rule = Fixed(gradient=0.5, hessian=12, third=1.0)
    sizes = rule.first(101, 3)
    assert sizes == Sizes(101, 51, 12, 101)
    assert Fixed(gradient=1, hessian=10**6).first(101, 3) == Sizes(101, 1, 101, 6)
    assert rule.next(outlook(sizes, 101, noisy=True, step=1e-9, noise_share=1e9)) == sizes
    assert not rule.nested
    assert not rule.replacement


def test_the_papers_samples_are_five_percent():
    assert Fixed().first(1000, 3) == Sizes(1000, 50, 50, 50)


def test_growing_multiplies_by_its_factor_and_doubles_that_under_noise():
    rule = Growing(start=0.1, factor=1.5)
    first = rule.first(1000, 3)
    assert first == Sizes(1000, 100, 100, 100)
    assert rule.next(outlook(first)) == Sizes(1000, 150, 150, 150)
    assert rule.next(outlook(first, noisy=True)) == Sizes(1000, 300, 300, 300)


@pytest.mark.parametrize(("step", "spread"), [(0.5, 1.0), (0.9, 3.0), (0.7, 0.5)])
def test_adaptive_sizes_satisfy_the_condition_with_the_last_step(step, spread):
    """D / sqrt(m) <= kappa |s|^(4-i) for g, B and T, unless bounded by n or by `most`."""
    n, rule = 10**6, Adaptive(start=1, most=1e9)
    sizes = rule.next(outlook(rule.first(n, 3), n, step=step, spreads=(spread,) * 3))
    for m, kappa, power in zip(parts(sizes)[1:], rule.kappa, (3, 2, 1), strict=True):
        assert spread / np.sqrt(m) <= kappa * step**power
        assert m == 1 or spread / np.sqrt(m - 1) > kappa * step**power
    assert sizes.gradient >= sizes.hessian >= sizes.third


def test_adaptive_grows_by_no_more_than_most():
    rule = Adaptive(start=10, most=2.5)
    sizes = rule.first(10**6, 3)
    for grown in (25, 63, 158):
        sizes = rule.next(outlook(sizes, 10**6, step=1e-9))
        assert sizes == Sizes(10**6, grown, grown, grown)


@pytest.mark.parametrize("step", [1e-30, 3.4e-75, 4.3e-140, 1e-310])
def test_adaptive_takes_a_step_of_any_length(step):
    rule = Adaptive(start=10, most=2.0)
    assert rule.next(outlook(rule.first(1000, 3), step=step)) == Sizes(1000, 20, 20, 20)


def test_progressive_begins_at_a_multiple_of_d_and_takes_one_sample_for_all():
    rule = Progressive(multiple=10, factor=3)
    sizes = rule.first(10_000, 7)
    assert sizes == Sizes(70, 70, 70, 70)
    assert rule.next(outlook(sizes, 10_000, noise_share=0.99)) == sizes
    assert rule.next(outlook(sizes, 10_000, noise_share=1.0)) == Sizes(210, 210, 210, 210)
    assert rule.next(outlook(sizes, 10_000, noisy=True)) == Sizes(210, 210, 210, 210)
    assert rule.nested


def test_progressive_begins_at_twenty_terms_for_each_variable():
    assert Progressive().first(10_000, 7) == Sizes(140, 140, 140, 140)
    assert Progressive() == Progressive(multiple=None, factor=3.0, lag=400.0)
    assert Progressive().suited(0.0, 7) == Progressive(multiple=20.0)
    assert Progressive(multiple=5.0).suited(1e5, 7) == Progressive(multiple=5.0)


def test_progressive_passes_over_samples_above_a_fifth():
    rule = Progressive(multiple=10)
    assert rule.first(351, 7) == Sizes(70, 70, 70, 70)
    assert rule.first(350, 7) == Sizes(350, 350, 350, 350)
    assert rule.first(3, 7) == Sizes(3, 3, 3, 3)
    sizes = Sizes(70, 70, 70, 70)
    for n, grown in ((1051, 210), (1050, 1050), (351, 351)):
        assert rule.next(outlook(sizes, n, noisy=True)) == Sizes(grown, grown, grown, grown)


def test_curvature_stays_on_the_last_sample_while_it_explains_the_gradient_and_bends_to_the_end():
    rule, n, d = Progressive(), 100_000, 10
    last = Sizes(9000, 9000, 9000, 9000)
    lagging = rule.next(outlook(last, n=n, d=d, noise_share=10.0))
    assert lagging == Sizes(n, n, 9000, 9000)
    assert rule.next(outlook(lagging, n=n, d=d, missed=0.24, noise_share=10.0)) == lagging
    for missed in (0.26, np.inf):
        assert rule.next(outlook(lagging, n=n, d=d, missed=missed)) == Sizes(n, n, n, 9000)


def test_curvature_over_too_few_terms_does_not_lag_behind():
    assert Progressive().next(outlook(Sizes(*[9000] * 4), n=100_000, d=23, noise_share=10.0)) == Sizes(*[100_000] * 4)
    assert Progressive(lag=390).next(outlook(Sizes(*[9000] * 4), n=100_000, d=23, noise_share=10.0)).hessian == 9000


def test_dear_curvature_lags_on_smaller_samples_and_grows_with_what_it_misses():
    rule, n, d = Progressive(), 100_000, 80
    last, dear = Sizes(9000, 9000, 9000, 9000), {"n": n, "d": d, "cost": 20.0}
    assert rule.next(outlook(last, n=n, d=d, noise_share=10.0)) == Sizes(n, n, n, n)
    lagging = rule.next(outlook(last, noise_share=10.0, **dear))
    assert lagging == Sizes(n, n, 9000, 9000)
    assert rule.next(outlook(lagging, missed=0.24, **dear)) == lagging
    grown = rule.next(outlook(lagging, missed=0.26, **dear))
    assert grown == Sizes(n, n, 27_000, 27_000)
    assert rule.next(outlook(Sizes(n, n, 81_000, 81_000), missed=np.inf, **dear)) == Sizes(n, n, n, 81_000)


def test_curvature_lags_on_at_most_a_tenth_of_the_terms():
    found = Progressive().next(outlook(Sizes(*[30_000] * 4), n=100_000, d=10, noise_share=100.0, iteration=100))
    assert found == Sizes(100_000, 100_000, 10_000, 10_000)


@pytest.mark.parametrize("size", [0, -1, -0.5, 0.0, 1.5, float("nan"), True])
@pytest.mark.parametrize(
    "make",
    [lambda s: Fixed(gradient=s), lambda s: Fixed(third=s), lambda s: Growing(start=s), lambda s: Adaptive(start=s)],
    ids=["gradient", "third", "growing", "adaptive"],
)
def test_a_size_that_is_neither_fraction_nor_count_is_refused_with_its_value(make, size):
    with pytest.raises(ValueError, match=rf"(Fixed|Growing|Adaptive)\(\w+={size}\)"):
        make(size)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Growing(factor=1.0), r"Growing\(factor=1\.0\)"),
        (lambda: Growing(factor=float("nan")), r"Growing\(factor=nan\)"),
        (lambda: Adaptive(most=1.0), r"Adaptive\(most=1\.0\)"),
        (lambda: Adaptive(kappa=(1.0, 0.0, 1.0)), r"Adaptive\(kappa="),
        (lambda: Adaptive(kappa=(1.0, 1.0)), r"Adaptive\(kappa="),
        (lambda: Progressive(multiple=0.0), r"Progressive\(multiple=0\.0\)"),
        (lambda: Progressive(lag=-1.0), r"Progressive\(lag=-1\.0\)"),
        (lambda: Progressive(factor=1.0), r"Progressive\(factor=1\.0\)"),
    ],
)
def test_a_setting_that_would_never_reach_all_terms_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_count_takes_numpy_whole_numbers_as_counts():
    assert count("Fixed", "gradient", np.int64(7), 100) == 7


def test_is_full_asks_for_every_part():
    assert Sizes(5, 5, 5, 5).is_full(5)
    for name in ("value", "gradient", "hessian", "third"):
        assert not replace(Sizes(5, 5, 5, 5), **{name: 4}).is_full(5)


@given(n=st.integers(1, 10**6), d=st.integers(1, 500), fewest=st.floats(0, 1e5))
def test_progressive_begins_with_as_many_light_terms_as_cost_nothing(n, d, fewest):
    rule = Progressive().suited(fewest, d)
    assert rule.first(n, d).value >= min(n, fewest * (1 - 1e-12))
    assert rule.first(n, d).value >= Progressive().first(n, d).value
    if fewest <= 20 * d:
        assert rule == Progressive(multiple=20.0)
