"""The sigma rules, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercet import PaperSigma, SignedEstimate, TrustRegion
from tercet.control.sigma import Control, Evidence, Miss

NOTHING = Miss(0.0)
positive = st.floats(1e-8, 1e8)


def evidence(
    ratio: float, accepted: bool | None = None, length: float = 1.0, power: int = 4, **misses: Miss
) -> Evidence:
    accepted = bool(ratio >= 0.2) if accepted is None else accepted
    return Evidence(ratio, accepted, length, power, misses.get("quadratic", NOTHING), misses.get("cubic", NOTHING))


# the paper's rule ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "factor"),
    [
        (1.5, 0.8),
        (np.nextafter(0.8, 1.0), 0.8),
        (0.8, 1.0),
        (0.5, 1.0),
        (0.2, 1.0),
        (np.nextafter(0.2, 0.0), 2.0),
        (0.0, 2.0),
        (-3.0, 2.0),
        (-np.inf, 2.0),
        (np.nan, 2.0),
    ],
)
def test_paper_sigma_multiplies_by_gamma1_one_or_gamma3(ratio, factor):
    after = PaperSigma().next(Control(5.0, 5.0), evidence(ratio))
    assert (after.sigma2, after.sigma3) == (5.0 * factor, 5.0 * factor)
    assert after.radius == np.inf


@given(sigma=positive, ratio=st.floats(allow_nan=False))
def test_paper_sigma_stays_within_the_intervals_of_the_paper(sigma, ratio):
    rule = PaperSigma()
    after = rule.next(Control(sigma, sigma), evidence(ratio)).sigma3
    low, mid, high = rule.gamma
    if ratio > rule.eta2:
        assert max(rule.minimum, low * sigma) <= after <= sigma
    elif ratio >= rule.eta1:
        assert sigma <= after <= mid * sigma
    else:
        assert mid * sigma <= after <= high * sigma


def test_paper_sigma_starts_at_its_start_for_both_models_without_a_radius():
    assert PaperSigma().first() == Control(1.0, 1.0, np.inf)
    assert PaperSigma(start=7.0).first() == Control(7.0, 7.0, np.inf)


def test_paper_sigma_does_not_fall_below_its_minimum():
    rule = PaperSigma(minimum=0.5)
    assert rule.next(Control(0.55, 0.55), evidence(1.0)).sigma3 == 0.5
    assert rule.next(Control(0.5, 0.5), evidence(1.0)).sigma3 == 0.5
    control = PaperSigma().first()
    for _ in range(200):
        control = PaperSigma().next(control, evidence(1.0))
    assert control.sigma3 == 1e-10


def test_paper_sigma_does_not_look_at_how_the_polynomials_missed():
    rule = PaperSigma()
    large = evidence(0.9, quadratic=Miss(1e6, 1e6), cubic=Miss(1e6, 1e6))
    assert rule.next(Control(2.0, 2.0), large) == rule.next(Control(2.0, 2.0), evidence(0.9))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gamma": (1.0, 1.2, 2.0)}, "gamma=(1.0, 1.2, 2.0)"),
        ({"gamma": (0.0, 1.2, 2.0)}, "gamma=(0.0"),
        ({"gamma": (0.8, 1.0, 2.0)}, "gamma="),
        ({"gamma": (0.8, 3.0, 2.0)}, "gamma="),
        ({"eta1": 0.0}, "eta1=0.0"),
        ({"eta1": 0.9}, "eta1=0.9"),
        ({"eta2": 1.0}, "eta2=1.0"),
        ({"eta1": np.nan}, "eta1=nan"),
        ({"start": 0.0}, "start=0.0"),
        ({"start": -1.0}, "start=-1.0"),
        ({"minimum": 0.0}, "minimum=0.0"),
    ],
    ids=str,
)
def test_paper_sigma_refuses_settings_out_of_order(options, text):
    with pytest.raises(ValueError, match="PaperSigma") as caught:
        PaperSigma(**options)
    assert text in str(caught.value)


# the estimate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [3, 4])
def test_the_estimate_is_the_sigma_that_makes_the_model_exact(power):
    """f(x + s) = phi(s) + c/p |s|^p has value miss c/p |s|^p and slope miss c |s|^p; both give c."""
    c, length = 3.0, 0.7
    value, slope = c / power * length**power, c * length**power
    assert Miss(value).estimate(length, power) == pytest.approx(c, rel=1e-14)
    assert Miss(value, slope).estimate(length, power) == pytest.approx(c, rel=1e-14)
    assert Miss(0.0, slope).estimate(length, power) == pytest.approx(c, rel=1e-14)


def test_the_estimate_takes_the_larger_of_value_and_slope_and_no_negative_number():
    assert Miss(1.0, 8.0).estimate(1.0, 4) == 8.0
    assert Miss(4.0, 8.0).estimate(1.0, 4) == 16.0
    assert Miss(-1.0, -8.0).estimate(1.0, 4) == 0.0
    assert Miss(-1.0, 2.0).estimate(1.0, 4) == 2.0


@pytest.mark.parametrize("miss", [Miss(np.nan), Miss(np.inf), Miss(np.nan, np.nan), Miss(-np.inf, np.inf)])
def test_the_estimate_leaves_out_what_is_not_finite(miss):
    assert miss.estimate(1.0, 4) == 0.0


def test_a_step_of_no_length_gives_no_estimate():
    assert Miss(1.0, 1.0).estimate(0.0, 4) == 0.0


def test_signed_estimate_after_an_accepted_step_is_the_estimate():
    rule = SignedEstimate()
    after = rule.next(Control(1.0, 1.0), evidence(0.5, quadratic=Miss(0.5), cubic=Miss(0.25, 0.125)))
    assert (after.sigma2, after.sigma3) == (2.0, 1.0)
    after = rule.next(Control(1.0, 1.0), evidence(0.5, quadratic=Miss(1e6), cubic=Miss(0.0, 1e5)))
    assert (after.sigma2, after.sigma3) == (4e6, 1e5)  # no cap after an accepted step


def test_signed_estimate_after_an_accepted_step_does_not_fall_below_shrink_sigma():
    rule = SignedEstimate(shrink=0.03)
    after = rule.next(Control(10.0, 20.0), evidence(0.9, quadratic=Miss(-1.0), cubic=Miss(0.0)))
    assert (after.sigma2, after.sigma3) == (0.3, 0.6)


def test_signed_estimate_after_a_rejection_lies_between_grow_and_leap_sigma():
    rule = SignedEstimate(grow=2.0, leap=100.0)
    for miss, sigma in (
        (Miss(-1.0), 6.0),
        (Miss(0.0), 6.0),
        (Miss(2.5), 10.0),
        (Miss(75.0), 300.0),
        (Miss(1e9), 300.0),
    ):
        assert rule.next(Control(3.0, 3.0), evidence(-1.0, quadratic=miss, cubic=miss)).sigma3 == sigma


@given(sigma=positive, value=st.floats(), slope=st.floats(), length=st.floats(1e-6, 1e6), power=st.sampled_from([3, 4]))
def test_signed_estimate_after_a_rejection_is_never_outside_its_limits(sigma, value, slope, length, power):
    rule = SignedEstimate()
    miss = Miss(value, slope)
    after = rule.next(Control(sigma, sigma), evidence(-1.0, length=length, power=power, quadratic=miss, cubic=miss))
    assert 2.0 * sigma <= after.sigma2 <= 100.0 * sigma
    assert after.sigma3 == after.sigma2


@given(sigma=positive, value=st.floats(), slope=st.floats(), length=st.floats(1e-6, 1e6))
def test_signed_estimate_after_an_accepted_step_is_finite_and_at_least_shrink_sigma(sigma, value, slope, length):
    miss = Miss(value, slope)
    after = SignedEstimate().next(Control(sigma, sigma), evidence(0.5, length=length, quadratic=miss, cubic=miss))
    assert 0.03 * sigma <= after.sigma3 < np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_signed_estimate_grows_at_least_tenfold_where_the_trial_point_was_not_finite(bad):
    after = SignedEstimate().next(
        Control(1.0, 3.0), evidence(-np.inf, length=2.0, quadratic=Miss(bad), cubic=Miss(bad))
    )
    assert after.sigma2 >= 10.0
    assert after.sigma3 >= 30.0
    assert after.radius == 0.1 * 2.0


def test_signed_estimate_leaves_the_third_sigma_alone_where_no_third_derivative_was_bought():
    lone = Evidence(0.9, True, 1.0, 4, Miss(0.5), None)
    after = SignedEstimate().next(Control(1.0, 7.0), lone)
    assert (after.sigma2, after.sigma3) == (2.0, 7.0)


@pytest.mark.parametrize(
    ("ratio", "accepted", "before", "after"),
    [
        (-np.inf, False, 10.0, 0.1),
        (-1.0, False, 10.0, 0.5),
        (0.05, False, 0.2, 0.5),
        (0.2, True, 10.0, 0.5),
        (0.25, True, 10.0, 1.0),
        (0.75, True, 10.0, 1.0),
        (0.9, True, np.inf, 2.0),
        (0.9, True, 1.0, 2.0),
        (0.9, True, 10.0, 7.0),
        (1e9, True, 0.0, 2.0),
    ],
)
def test_the_radius_follows_the_last_step(ratio, accepted, before, after):
    """A tenth or half of a bad step, the step itself, or twice a good one (not below 0.7 radius)."""
    for length in (1.0, 4.0):
        control = SignedEstimate().next(Control(1.0, 1.0, before * length), evidence(ratio, accepted, length))
        assert control.radius == pytest.approx(after * length, rel=1e-15)


def test_signed_estimate_starts_at_its_start_without_a_radius():
    assert SignedEstimate(start=0.5).first() == Control(0.5, 0.5, np.inf)


@pytest.mark.parametrize(
    "options",
    [
        {"start": 0.0},
        {"start": -1.0},
        {"start": np.nan},
        {"eta1": 0.0},
        {"eta1": 1.0},
        {"shrink": 0.0},
        {"shrink": 1.0},
        {"grow": 1.0},
        {"leap": 1.5},
        {"memory": -1.0},
        {"memory": np.nan},
    ],
    ids=str,
)
def test_signed_estimate_refuses_settings_out_of_order_and_names_them(options):
    with pytest.raises(ValueError, match="SignedEstimate") as caught:
        SignedEstimate(**options)
    (name, value), *_ = options.items()
    assert f"{name}={value}" in str(caught.value)


# a radius alone -----------------------------------------------------------------------------------------------------


def test_a_trust_region_has_no_sigma_and_takes_its_first_radius_from_x_or_from_steepest_descent():
    rule = TrustRegion(grow=2.0)
    assert rule.first() == Control(0.0, 0.0, np.inf)
    assert rule.begin(rule.first(), 3.0, lambda: 0.5) == Control(0.0, 0.0, 6.0)
    assert rule.begin(rule.first(), 0.0, lambda: 0.5) == Control(0.0, 0.0, 1.0)
    assert 0.0 < rule.begin(rule.first(), 0.0, lambda: 0.0).radius < 1e-50


def test_a_radius_that_is_known_is_kept_and_no_step_of_steepest_descent_is_asked_for():
    def untouched() -> float:
        raise AssertionError("a product with B was spent")

    assert TrustRegion().begin(Control(0.0, 0.0, 0.25), 3.0, untouched).radius == 0.25


@pytest.mark.parametrize(
    ("ratio", "accepted", "best", "after"),
    [
        (-np.inf, False, 0.5, 0.1),
        (-1.0, False, 0.05, 0.1),
        (-1.0, False, 0.3, 0.3),
        (-1.0, False, 3.0, 0.5),
        (0.12, True, 0.5, 0.5),
        (0.2, True, 0.5, 0.8),
        (0.25, True, 0.5, 1.0),
        (0.5, True, 0.5, 2.0),
        (0.75, True, 0.5, 3.0),
        (1e9, True, 0.5, 3.0),
    ],
)
def test_the_radius_of_a_trust_region_follows_what_f_was_seen_to_do(ratio, accepted, best, after):
    for length in (1.0, 4.0):
        told = Evidence(ratio, accepted, length, 4, NOTHING, None, best)
        assert TrustRegion().next(Control(0.0, 0.0, 10 * length), told) == Control(0.0, 0.0, after * length)


def test_after_a_rejected_step_that_t_made_longer_the_radius_is_a_part_of_what_it_was():
    told = Evidence(-1.0, False, 1.5, 4, NOTHING, NOTHING, 0.5)
    assert TrustRegion().next(Control(0.0, 0.0, 1.0), told).radius == 0.5


@given(ratio=st.floats(), length=positive, best=st.floats(0.0, 10.0), radius=positive)
def test_a_rejection_makes_the_radius_smaller_and_nothing_makes_it_more_than_grow_steps(ratio, length, best, radius):
    rule = TrustRegion()
    told = Evidence(ratio, bool(ratio >= rule.eta1), length, 4, NOTHING, None, best)
    after = rule.next(Control(0.0, 0.0, radius), told).radius
    assert 0.0 < after <= rule.grow * length
    if not told.accepted:
        assert after <= 0.5 * length


@pytest.mark.parametrize(
    "options",
    [
        {"eta1": 0.0},
        {"eta1": 1.0},
        {"eta1": np.nan},
        {"grow": 1.0},
        {"grow": np.inf},
        {"grow": np.nan},
    ],
    ids=str,
)
def test_a_trust_region_refuses_settings_out_of_order_and_names_them(options):
    with pytest.raises(ValueError, match="TrustRegion") as caught:
        TrustRegion(**options)
    (name, value), *_ = options.items()
    assert f"{name}={value}" in str(caught.value)
