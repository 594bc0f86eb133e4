"""sigma_max and the iteration bounds: their constants by SymPy, their truth by runs on functions that are known."""

from math import inf, isinf

import numpy as np
import pytest

import tercet
from benchmarks.problems.draws import slope
from tercet import theory
from tercet.theory.complexity import Model, power, relative_threshold

EXAMPLE = {"kappa": (0.01, 0.25, 0.5), "theta": 0.1, "eta2": 0.8}


# the constants, symbolically -----------------------------------------------------------------------------------------


def test_taylor_remainders_are_attained_by_the_fourth_power():
    sympy = pytest.importorskip("sympy")
    x, s, L = sympy.symbols("x s L", positive=True)
    f = L * x**4 / 24  # third derivative L x: Lipschitz with constant L
    parts = [sympy.diff(f, x, k) for k in range(4)]

    def remainder(k):  # of the k-th derivative at x + s
        taylor = sum(parts[k + j] * s**j / sympy.factorial(j) for j in range(4 - k))
        return sympy.expand(parts[k].subs(x, x + s) - taylor)

    assert remainder(0) == L * s**4 / 24
    assert remainder(1) == L * s**3 / 6  # the paper prints L/2, and drops the 1/2 of the quadratic term
    assert remainder(2) == L * s**2 / 2
    assert remainder(3) == L * s


def test_the_regularizers_derivatives_along_a_direction():
    sympy = pytest.importorskip("sympy")
    s, y = sympy.Matrix(sympy.symbols("s1:4")), sympy.Matrix(sympy.symbols("y1:4"))
    t, sigma = sympy.symbols("t sigma")
    along = sigma / 4 * ((s + t * y).dot(s + t * y)) ** 2
    second, third = (sympy.diff(along, t, k).subs(t, 0) for k in (2, 3))
    assert sympy.expand(second - sigma * (s.dot(s) * y.dot(y) + 2 * s.dot(y) ** 2)) == 0  # at most 3 sigma |s|^2
    assert sympy.expand(third - 6 * sigma * s.dot(y) * y.dot(y)) == 0  # at most 6 sigma |s|; the paper has sigma/2


def test_the_shares_of_youngs_inequality():
    sympy = pytest.importorskip("sympy")
    e, s = sympy.symbols("e s", positive=True)  # e = eps^(1/3)
    # kb eps^(2/3) s <= kb/3 (2 eps + s^3) and kt/2 eps^(1/3) s^2 <= kt/6 (eps + 2 s^3), with equality at s = e
    assert sympy.expand((e - s) ** 2 * (2 * e + s) - (2 * e**3 + s**3 - 3 * e**2 * s)) == 0
    assert sympy.expand((e - s) ** 2 * (e + 2 * s) - (e**3 + 2 * s**3 - 3 * e * s**2)) == 0
    # kt eps_2^(1/2) s <= kt/2 (eps_2 + s^2)
    assert sympy.expand((e - s) ** 2 - (e**2 + s**2 - 2 * e * s)) == 0


def test_the_numbers_of_the_theorem_follow_from_one_formula():
    sympy = pytest.importorskip("sympy")
    K, eps = sympy.symbols("K eps", positive=True)
    printed = {1: 8 * sympy.cbrt(2) * K ** sympy.Rational(4, 3), 2: 16 * K**2, 3: 64 * K**4}  # 3 with its fourth power
    for order, expected in printed.items():
        exponent = sympy.Rational(4, 4 - order)
        ours = 4 * (K / (eps / 2)) ** exponent  # c = 1/2, the paper's kappas
        assert sympy.simplify(ours * eps**exponent - expected) == 0
    paper = Model(1.0, (0.25, 0.25, 0.5), 0.1)
    assert [paper.share(i) for i in (1, 2, 3)] == pytest.approx([0.5, 0.5, 0.5])
    assert paper.size(1, 2.0) == pytest.approx(2.0 + 0.1 + 1 / 6 + 0.25)
    assert paper.size(2, 2.0) == pytest.approx(6.0 + 0.1 + 0.5 + 0.25)
    assert paper.size(3, 2.0) == pytest.approx(12.0 + 0.1 + 1.0)


def test_the_example_of_the_notes_and_its_equation_solved_by_sympy():
    found = theory.sigma_max(1.0, **EXAMPLE)
    assert found.threshold == pytest.approx(109.705, abs=5e-4)
    assert found.value == pytest.approx(2 * found.threshold)
    sympy = pytest.importorskip("sympy")
    sigma = sympy.Symbol("sigma", positive=True)
    kg, kb, kt, L, theta = (sympy.Rational(*r) for r in ((1, 100), (1, 4), (1, 2), (1, 1), (1, 10)))
    c = 1 - (kg + 2 * kb / 3 + kt / 6)
    K = sigma + theta + L / 6 + (kb + kt) / 3
    q = (K / c) ** sympy.Rational(1, 3)
    equation = kg * q**3 + kb / 2 * q**2 + kt / 6 * q + L / 24 - sigma / 20
    assert float(sympy.nsolve(equation, sigma, 100)) == pytest.approx(found.threshold, rel=1e-12)


def test_the_largest_kappa_g_by_sympy():
    sympy = pytest.importorskip("sympy")
    k, kb, kt, r = sympy.symbols("k kb kt r", positive=True)
    solution = sympy.solve(sympy.Eq(k, r * (1 - k - 2 * kb / 3 - kt / 6)), k)[0]
    value = solution.subs({kb: sympy.Rational(1, 4), kt: sympy.Rational(1, 2), r: sympy.Rational(1, 20)})
    assert value == sympy.Rational(1, 28)
    assert theory.largest_kappa_g() == pytest.approx(1 / 28)
    limit = theory.largest_kappa_g()
    assert theory.sigma_max(1.0, kappa=(0.999 * limit, 0.25, 0.5)).finite
    assert not theory.sigma_max(1.0, kappa=(1.001 * limit, 0.25, 0.5)).finite
    assert theory.largest_kappa_g(2.0, 0.5) == 0.0


# sigma_max -----------------------------------------------------------------------------------------------------------


def test_above_the_threshold_the_inequality_holds_and_below_it_does_not():
    for kappa in ((0.01, 0.25, 0.5), (0.0, 0.0, 0.0), (0.03, 0.0, 1.0)):
        for L in (0.0, 1e-3, 1.0, 1e3):
            found, model = theory.sigma_max(L, kappa=kappa), Model(L, kappa, 0.1)
            for factor in (1.0001, 2.0, 100.0):
                sigma = factor * found.threshold
                assert model.miss(1, sigma) <= 0.2 * sigma / 4 + 1e-15
            if found.threshold > 1e-9:
                assert model.miss(1, 0.999 * found.threshold) > 0.2 * 0.999 * found.threshold / 4


def test_exact_derivatives_need_a_sixth_of_the_lipschitz_constant_at_every_order():
    for order in (1, 2, 3):
        assert theory.sigma_max(3.0, kappa=(0, 0, 0), order=order).threshold == pytest.approx(3.0 / 6 / 0.2)


@pytest.mark.parametrize(
    ("kappa", "order", "match"),
    [
        ((0.25, 0.25, 0.5), 1, "kappa_g is too large.*0.03571"),
        ((0.01, 1.5, 0.5), 1, "takes all of eps_1"),
        ((0.01, 0.01, 0.5), 2, r"kappa_g term grows like sigma\^\(3/2\)"),
        ((0.0, 0.25, 0.5), 2, "kappa_b is too large"),
        ((0.0, 0.01, 0.1), 3, r"kappa_b term grows like sigma\^\(2/1\)"),
        ((0.0, 0.0, 0.1), 3, "kappa_t is too large"),
    ],
)
def test_no_sigma_is_infinite_with_its_reason(kappa, order, match):
    import re

    found = theory.sigma_max(1.0, kappa=kappa, order=order)
    assert isinf(found.value)
    assert isinf(found.threshold)
    assert re.search(match, found.reason)
    bound = theory.complexity(1e-2, 1.0, 1.0, kappa=kappa, order=order)
    assert isinf(bound.total)
    assert bound.per_iteration == 0.0
    assert bound.reason == found.reason


def test_samples_relative_to_the_step_allow_every_kappa_at_every_order():
    for order in (1, 2, 3):
        found = theory.sigma_max(1.0, relative=True, order=order)
        assert found.threshold == pytest.approx(4 * (0.25 + 0.125 + 1 / 12 + 1 / 24) / 0.2)
        assert found.threshold == relative_threshold(Model(1.0), 0.8)


@pytest.mark.parametrize("eps", [1.0, 1e-2, 1e-6])
def test_the_printed_bound_is_empty_and_says_so(eps):
    found = theory.sigma_max(1.0, paper=True, eps=eps)
    assert found.value == inf
    assert "empty" in found.reason
    assert found.printed < 0
    small = theory.sigma_max(1.0, kappa=(0.01, 0.25, 0.5), paper=True, eps=1e-3)
    assert not small.finite
    far = theory.sigma_max(1e-6, kappa=(0.001, 1e-6, 1e-6), paper=True, eps=1.0)
    assert far.finite
    assert far.printed > 0


# iteration bounds ----------------------------------------------------------------------------------------------------


def test_the_bound_has_the_promised_powers_of_eps():
    for order, exponent in ((1, 4 / 3), (2, 2 * 2 / 3), (3, 4 / 3)):
        # eps_i = eps^((4-i)/3): every term is eps^(-4/3)
        counts = [
            theory.complexity(eps, 1.0, 1.0, relative=True, order=order, sigma_min=1e-3).successful
            for eps in (1e-4, 1e-6)
        ]
        assert np.log(counts[1] / counts[0]) / np.log(100) == pytest.approx(exponent, rel=1e-3)


def test_the_total_is_affine_in_the_successful_ones_and_delta_is_shared():
    bound = theory.complexity(1e-2, 2.0, 1.0, **{k: v for k, v in EXAMPLE.items() if k != "eta2"}, sigma_min=1.0)
    growth = 1 + abs(np.log(0.8)) / np.log(1.2)
    assert bound.total == np.ceil(growth * bound.successful + np.log(bound.sigma.value) / np.log(1.2))
    assert bound.per_iteration == pytest.approx(0.05 / bound.total)
    assert theory.per_iteration_delta(0.05, 100) == pytest.approx(5e-4)
    assert theory.per_iteration_delta(0.005, 100, paper=True) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="no probability"):
        theory.per_iteration_delta(0.05, 100, paper=True)


def test_separate_tolerances_take_the_hardest():
    alone = theory.complexity(1e-3, 1.0, 1.0, relative=True, order=1, sigma_min=1.0)
    mixed = theory.complexity((1e-3, 100.0, 100.0), 1.0, 1.0, relative=True, order=3, sigma_min=1.0)
    assert mixed.successful == alone.successful
    assert mixed.eps == pytest.approx(1e-3)
    assert theory.complexity((1.0, 1e-2), 1.0, 1.0, relative=True, order=2).eps == pytest.approx(1e-3)


def test_the_printed_theorem_multiplies_once_more():
    how = {"kappa": (0.001, 1e-6, 1e-6), "sigma_min": 1.0}
    printed = theory.complexity(1.0, 1.0, 1e-6, paper=True, **how)
    ours = theory.complexity(1.0, 1.0, 1e-6, **how)
    assert printed.total > 2 * printed.successful
    assert printed.total == pytest.approx(
        np.ceil(
            ((1 + abs(np.log(0.8)) / np.log(1.2)) * printed.successful + np.log(printed.sigma.value) / np.log(1.2))
            * printed.successful
        )
    )
    assert ours.total < printed.total
    assert "[paper]" in printed.formula


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: theory.sigma_max(-1.0), "lipschitz=-1"),
        (lambda: theory.sigma_max(float("nan")), "lipschitz=nan"),
        (lambda: theory.sigma_max(inf), "lipschitz=inf"),
        (lambda: theory.sigma_max(1.0, kappa=(0.1, float("nan"), 0.1)), "kappa=nan"),
        (lambda: theory.sigma_max(1.0, kappa=(0.1, 0.1)), "three numbers"),
        (lambda: theory.sigma_max(1.0, eta2=1.0), "eta2=1"),
        (lambda: theory.sigma_max(1.0, gamma3=1.0), "gamma3"),
        (lambda: theory.sigma_max(1.0, order=4), "order=4"),
        (lambda: theory.sigma_max(1.0, sigma0=0.0), "sigma0=0"),
        (lambda: theory.sigma_max(1.0, paper=True), "give eps"),
        (lambda: theory.complexity(0.0, 1.0, 1.0), "eps=0"),
        (lambda: theory.complexity(-1.0, 1.0, 1.0), "eps=-1"),
        (lambda: theory.complexity((1.0,), 1.0, 1.0, order=2), "one for each order"),
        (lambda: theory.complexity(1.0, -1.0, 1.0), "gap=-1"),
        (lambda: theory.complexity(1.0, 1.0, 1.0, delta=1.5), r"delta=1\.5"),
        (lambda: theory.complexity(1.0, 1.0, 1.0, eta=(0.9, 0.8)), "eta"),
        (lambda: theory.complexity(1.0, 1.0, 1.0, gamma=(0.8, 0.9, 2.0)), "gamma"),
        (lambda: theory.complexity(1.0, 1.0, 1.0, sigma_min=0.0), "sigma_min=0"),
        (lambda: theory.per_iteration_delta(0.0, 10), r"delta=0\.0"),
        (lambda: theory.per_iteration_delta(0.1, 0), "iterations=0"),
    ],
)
def test_bad_input_is_refused_by_name(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# by experiment -------------------------------------------------------------------------------------------------------


def test_iterations_grow_like_the_promised_power_and_stay_below_the_bound():
    for reach in (0.5, 1.0):
        levels, counts = (0.1, 0.03, 0.01), []
        for eps in levels:
            run, gap, lipschitz = slope(eps, reach)
            assert np.all(run.trace["meets_1"])  # Condition 2
            bound = theory.complexity(eps, gap, lipschitz, kappa=(0, 0, 0), theta=1.0, sigma_min=1.0)
            assert run.nit <= bound.total
            assert np.count_nonzero(run.trace["accepted"]) <= bound.successful
            assert np.max(run.trace["sigma"]) <= bound.sigma.value
            counts.append(run.nit)
        fitted = -np.polyfit(np.log(levels), np.log(counts), 1)[0]
        assert fitted <= 4 / 3 + 0.02
        assert fitted == pytest.approx(reach + 1 / 3, abs=0.06)  # the family is as hard as it claims


@pytest.mark.parametrize("loss", ["logistic", "sigmoid_squares", "cauchy"])
def test_runs_on_linear_models_stay_below_sigma_max_and_below_the_iteration_bound(loss):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 4))
    problem = tercet.LinearModel(A, (A @ np.ones(4) + rng.standard_normal(200) > 0).astype(float), loss, l2=1e-3)
    found = theory.constants(problem)
    run = tercet.minimize(
        problem,
        np.full(4, 2.0),
        method=tercet.STM(
            tercet.Full(), tercet.GradientDescent(theta=1.0, iterations=500), tercet.PaperSigma(minimum=1e-2), np.inf
        ),
        order=1,
        tol=1e-3,
    )
    assert run.success
    good = run.trace["meets_1"].astype(bool)
    f0 = problem.over(None).at(np.full(4, 2.0)).value()
    bound = theory.complexity(1e-3, f0, found.lipschitz, kappa=(0, 0, 0), theta=1.0, sigma_min=1e-2)
    assert run.nit <= bound.total
    assert np.max(run.trace["sigma"]) <= bound.sigma.value
    fall = -np.diff(np.concatenate([[f0], run.trace["f"]]))
    sure = run.trace["accepted"].astype(bool) & good
    sure[-1] = False  # the last one reaches the tolerance, and promises nothing
    assert np.all(fall[sure] >= bound.decrease)


def test_the_decrease_follows_from_the_length_of_the_step():
    model = Model(1.0, (0, 0, 0), 0.1)
    assert power(model, 1, 1e-3, 2.0, False) == pytest.approx((1e-3 / model.size(1, 2.0)) ** (4 / 3))
    assert power(model, 3, 1e-1, 2.0, True) == pytest.approx((1e-1 / (12 + 0.1 + 1.0)) ** 4)
