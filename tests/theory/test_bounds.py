"""One relation between size, accuracy and failure, seen from three sides; and the lemmas behind its constants."""

from math import ceil, cos, exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tercet import theory
from tercet.sampling import bernstein, bounds

TAILS = {
    "vector": lambda N, **how: theory.vector_tail(7, 1.5, N, **how),
    "symmetric matrix": lambda N, **how: theory.matrix_tail(7, 1.5, N, **how),
    "matrix by width": lambda N, **how: theory.matrix_tail(7, N=N, width=1.0, **how),
    "general matrix": lambda N, **how: theory.matrix_tail(7, 1.5, N, columns=3, **how),
    "symmetric tensor": lambda N, **how: theory.tensor_tail(7, 1.5, N, **how),
    "general tensor": lambda N, **how: theory.tensor_tail((7, 2, 3), 1.5, N, symmetric=False, **how),
    "rank-one tensor": lambda N, **how: theory.tensor_tail(7, 1.5, N, rank_one=True, **how),
    "rank-one general tensor": lambda N, **how: theory.tensor_tail(
        (7, 2, 3), 1.5, N, symmetric=False, rank_one=True, **how
    ),
    "tensor of order 5": lambda N, **how: theory.tensor_tail(4, 1.5, N, order=5, **how),
}
BERNSTEINS = {
    "vector": lambda N, **how: theory.vector_bernstein(7, 1.5, N, **how),
    "matrix": lambda N, **how: theory.matrix_bernstein(7, N=N, width=1.0, **how),
    "general matrix": lambda N, **how: theory.matrix_bernstein(7, 1.5, N, columns=3, **how),
    "symmetric tensor": lambda N, **how: theory.tensor_bernstein(7, 1.5, N, **how),
    "rank-one tensor": lambda N, **how: theory.tensor_bernstein(7, 1.5, N, rank_one=True, **how),
    "general tensor": lambda N, **how: theory.tensor_bernstein((7, 2, 3), 1.5, N, symmetric=False, **how),
}


@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("statement", ["sharp", "corrected"])
@pytest.mark.parametrize("name", TAILS)
@settings(max_examples=12, deadline=None)
@given(
    N=st.integers(1, 10**6),
    t=st.floats(1e-3, 3.0),
    delta=st.floats(1e-12, 0.99),
)
def test_the_three_views_are_one_relation(name, statement, replacement, N, t, delta):
    tail = TAILS[name](None if replacement else N, replacement=replacement, statement=statement)
    n = tail.size(t, delta)
    assert n >= 1
    assert replacement or n <= N
    assert tail.failure(n, t) <= delta * (1 + 1e-6)
    assert tail.accuracy(n, delta) <= t * (1 + 1e-9)
    if n > 1:
        assert tail.failure(n - 1, t) >= delta * (1 - 1e-6)
        assert tail.accuracy(n - 1, delta) > t
    if n < N and not replacement:
        assert tail.failure(n, tail.accuracy(n, delta)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("name", BERNSTEINS)
@settings(max_examples=6, deadline=None)
@given(
    N=st.integers(2, 10**6),
    t=st.floats(1e-2, 2.0),
    delta=st.floats(1e-9, 0.9),
    variance=st.floats(0, 1),
)
def test_the_three_views_of_bernstein_are_one_relation(name, replacement, N, t, delta, variance):
    tail = BERNSTEINS[name](None if replacement else N, replacement=replacement)
    n = tail.size(t, delta, variance)
    assert replacement or n <= N
    assert tail.accuracy(n, delta, variance) <= t
    assert tail.failure(n, t, variance) <= delta * (1 + 1e-6)
    if n > 1:
        assert tail.accuracy(n - 1, delta, variance) > t
        assert tail.failure(n - 1, t, variance) >= delta * (1 - 1e-6)


@pytest.mark.parametrize("N", [50, 1000, 32561])
@pytest.mark.parametrize("t", [0.5, 0.1, 0.01])
def test_the_corrected_sizes_solve_the_inequalities_of_the_notes(N, t):
    d, s, w, delta = 6, 1.3, 0.7, 0.05

    def smallest(scale, logarithm):  # by looking at every n
        for n in range(1, N + 1):
            if n * t**2 >= scale * (1 + 1 / n) * (1 - n / N) * logarithm:
                return n
        raise AssertionError

    k0 = 2 * 3 / log(1.5)
    cases = [
        (theory.vector_tail(d, s, N, statement="corrected"), 8 * s**2, log((d + 1) / delta)),
        (theory.matrix_tail(d, s, N, statement="corrected"), 8 * s**2, log(2 * d / delta)),
        (theory.tensor_tail(d, w, N, statement="corrected"), 2 * w**2, log(2 / delta) + d * log(k0)),
        (
            theory.tensor_tail(d, w, N, statement="corrected", symmetric=False),
            2 * w**2,
            log(2 / delta) + 3 * d * log(k0),
        ),
    ]
    for tail, scale, logarithm in cases:
        assert tail.size(t, delta) == smallest(scale, logarithm)
    again = theory.vector_tail(d, s, replacement=True, statement="corrected")
    assert again.size(t, delta) == ceil(8 * (2 * s) ** 2 / t**2 * log((d + 1) / delta))


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
def test_the_sharp_bound_is_never_above_the_corrected_one(name, replacement):
    for n in (1, 10, 100, 499, 500, 501, 900, 999):
        for delta in (0.5, 0.05, 1e-6):
            sharp, corrected = (
                TAILS[name](1000, replacement=replacement, statement=which) for which in ("sharp", "corrected")
            )
            assert sharp.accuracy(n, delta) <= corrected.accuracy(n, delta) * (1 + 1e-12)


def test_the_printed_sizes_are_as_printed_and_tend_to_twice_all_terms():
    d, s, N, delta = 10, 2.0, 1000, 0.1
    L = log(2 * d / delta)
    for t in (1.0, 0.1):
        printed = ceil(16 * s**2 * L / (t**2 + 8 * s**2 / N * L))
        assert theory.vector_tail(d, s, N, paper=True).size(t, delta) == printed
        assert theory.matrix_tail(d, s, N, paper=True).size(t, delta) == printed
        K = log(2 / delta) + 3 * d * log(6 / log(1.5))
        expected = ceil(4 * s**2 * K / (t**2 + 2 * s**2 / N * K))
        assert theory.tensor_tail(d, s, N, paper=True).size(t, delta) == expected
        again = theory.vector_tail(d, s, replacement=True, paper=True)
        assert again.size(t, delta) == ceil(8 * s**2 / t**2 * log(d / delta))
    assert theory.vector_tail(d, s, N, paper=True).size(1e-6, delta) == 2 * N
    assert theory.vector_tail(d, s, N).size(1e-6, delta) == N


def test_a_symmetric_tensor_needs_a_third_of_the_sample_by_the_papers_cover_and_less_by_ours():
    def ratio(statement, d):
        sizes = (
            theory.tensor_tail(d, 1.0, replacement=True, statement=statement, symmetric=symmetric).size(0.01, 0.05)
            for symmetric in (False, True)
        )
        general, symmetric = sizes
        return general / symmetric

    assert ratio("corrected", 1000) == pytest.approx(3, abs=0.01)
    assert ratio("sharp", 1000) == pytest.approx(4.69, abs=0.03)
    assert ratio("corrected", 5) < ratio("corrected", 50) < 3


@pytest.mark.parametrize("order", [1, 2, 10, 1000])
@pytest.mark.parametrize("symmetric", [True, False])
def test_tensors_of_any_order_have_a_bound(order, symmetric):
    tail = theory.tensor_tail(3, 1.0, 10**6, order=order, symmetric=symmetric)
    n = tail.size(0.2, 0.1)
    assert 1 < n < 10**6
    assert n <= theory.tensor_tail(3, 1.0, 10**6, order=order, symmetric=symmetric, statement="corrected").size(
        0.2, 0.1
    )


def test_rank_one_terms_need_no_cover():
    sizes = [
        theory.tensor_tail(123, 1.0, replacement=True, rank_one=rank_one).size(0.01, 0.05) for rank_one in (False, True)
    ]
    assert sizes[0] > 30 * sizes[1]
    matrix = theory.matrix_tail(123, 0.5, columns=123 * 124 // 2, replacement=True)
    assert sizes[1] == matrix.size(0.01, 0.05)
    general = theory.tensor_tail((4, 5, 6), 1.0, 100, symmetric=False, rank_one=True)
    assert general.log_factors[0] == pytest.approx(log(4 + 30))


@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_unfolding_bounds_the_norm_and_keeps_that_of_a_rank_one_term(order):
    rng, a = np.random.default_rng(0), np.array([0.6, 0.8, 0.0])
    half = order // 2
    one = a
    for _ in range(order - 1):
        one = np.multiply.outer(one, a)
    assert np.linalg.norm(one.reshape(3**half, -1), 2) == pytest.approx(1.0)
    T = rng.standard_normal((3,) * order)
    norm = np.linalg.norm(T.reshape(3**half, -1), 2)
    for u in rng.standard_normal((200, order, 3)):
        value = T
        for direction in u / np.linalg.norm(u, axis=1)[:, None]:
            value = np.tensordot(direction, value, 1)
        assert abs(value) <= norm


@pytest.mark.parametrize("N", [2, 3, 10, 101, 1000])
def test_serflings_factor_bounds_the_sum_it_stands_for_and_information_grows_with_n(N):
    last = 0.0
    for n in range(1, N):
        m = N - n
        forward = m**2 / n * sum(1 / j**2 for j in range(m, N))
        backward = m / n * (n**2 / m * sum(1 / j**2 for j in range(n, N)))
        assert min(forward, backward) <= bounds.serfling(n, N) * (1 + 1e-12)
        assert bounds.serfling(n, N) <= bounds.printed_serfling(n, N) * (1 + 1e-12)
        assert n / bounds.serfling(n, N) > last
        last = n / bounds.serfling(n, N)
    assert bounds.serfling(N, N) == 0.0


@pytest.mark.parametrize("N", [2, 3, 10, 101, 1000])
def test_the_variance_factor_bounds_its_sum_closely_and_information_grows_with_n(N):
    last = 0.0
    for n in range(1, N):
        m = N - n
        forward = N * m**2 / n * sum(1 / (j * j * (j + 1)) for j in range(m, N))
        backward = m / n * (N * n**2 / m * sum(1 / (j * j * (j + 1)) for j in range(n, N)))
        exact = min(1.0, forward, backward)
        assert exact <= bernstein.bernstein_serfling(n, N) * (1 + 1e-12)
        if min(n, m) > 10:
            assert bernstein.bernstein_serfling(n, N) <= 1.02 * exact
        assert n / bernstein.bernstein_serfling(n, N) > last
        last = n / bernstein.bernstein_serfling(n, N)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_a_symmetric_form_falls_from_its_maximum_no_faster_than_the_cosine(order):
    rng, angles = np.random.default_rng(order), np.linspace(0, np.pi, 2001)
    powers = np.stack([np.cos(angles) ** (order - j) * np.sin(angles) ** j for j in range(order + 1)])
    for coefficients in rng.standard_normal((200, order + 1)):
        values = np.abs(coefficients @ powers)  # any symmetric form in the plane
        top = int(np.argmax(values))
        for radius in (0.05, 0.2, 0.4):
            away = 2 * np.arcsin(radius / 2)
            near = np.minimum(np.abs(angles - angles[top]), np.pi - np.abs(angles - angles[top])) <= away
            floor = bounds.symmetric_contraction(radius, order)
            assert np.all(values[near] >= floor * values[top] - 1e-5 * values[top])


@pytest.mark.parametrize("order", [2, 3])
def test_a_cover_of_every_mode_sees_the_norm_of_a_general_tensor(order):
    rng, radius = np.random.default_rng(0), 0.1
    step = 2 * np.arcsin(radius / 2)
    net, fine = np.arange(0, 2 * np.pi, 2 * step), np.arange(0, np.pi, 0.01)
    for _ in range(20):
        T = rng.standard_normal((2,) * order)
        slices = T if order == 2 else np.einsum("abc,ag->gbc", T, np.stack([np.cos(fine), np.sin(fine)]))
        norm = np.max(np.linalg.norm(slices, 2, axis=(-2, -1)))  # singular values of the slices, no cover
        assert norm * (1 + 1e-3) >= largest(T, net) >= bounds.general_contraction(radius, order) * norm


def largest(T, angles):
    u = np.stack([np.cos(angles), np.sin(angles)])
    letters = "abc"[: T.ndim]
    terms = ",".join(f"{a}{a.upper()}" for a in letters)
    return np.max(np.einsum(f"{letters},{terms}->{letters.upper()}", T, *[u] * T.ndim))


def test_known_numbers():
    # (d+1) exp(-n t^2 / (2 s^2)) with replacement, and rho = 1 - (n-1)/N below half of N
    tail = theory.vector_tail(3, 2.0, replacement=True)
    assert tail.failure(100, 1.0) == pytest.approx(4 * exp(-100 / 8))
    tail = theory.vector_tail(3, 2.0, 1000)
    assert tail.failure(101, 1.0) == pytest.approx(4 * exp(-101 / 8 / 0.9))
    assert tail.accuracy(101, 0.05) == pytest.approx(sqrt(8 * 0.9 / 101 * log(4 / 0.05)))
    assert tail.failure(1000, 1e-9) == 0.0
    assert tail.accuracy(1000, 1e-9) == 0.0
    assert bounds.symmetric_contraction(0.1, 3) == pytest.approx(cos(6 * np.arcsin(0.05)))


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("kind", ["vector", "matrix", "tensor"])
def test_the_unit_of_measurement_does_not_matter(kind, scale):
    make, plain = getattr(theory, f"{kind}_tail"), {"vector": 2.0, "matrix": 2.0, "tensor": 2.0}[kind]
    one, other = make(3, plain, 1000), make(3, plain * scale, 1000)
    assert other.size(0.3 * scale, 0.1) == one.size(0.3, 0.1)
    assert other.failure(50, scale) == pytest.approx(one.failure(50, 1.0))
    assert other.accuracy(50, 0.1) == pytest.approx(scale * one.accuracy(50, 0.1))
    make = getattr(theory, f"{kind}_bernstein")
    one, other = make(3, plain, 1000), make(3, plain * scale, 1000)
    assert other.accuracy(50, 0.1, 0.0) == pytest.approx(scale * one.accuracy(50, 0.1, 0.0))


def test_the_sizes_in_the_documentation():
    def sizes(make, width, t, **how):
        return [make(123, width, 32561, statement=s, **how).size(t, 0.05) for s in ("sharp", "corrected", "paper")]

    assert sizes(theory.vector_tail, 1.0, 0.1) == [1492, 5247, 11252]
    assert sizes(theory.vector_tail, 1.0, 0.01) == [26949, 30950, 62147]
    assert sizes(theory.tensor_tail, 2.0, 0.1) == [23252, 29035, 62571]
    assert sizes(theory.tensor_tail, 2.0, 0.1, rank_one=True)[0] == 2227
    assert sizes(theory.tensor_tail, 2.0, 0.01, rank_one=True)[0] == 28658


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: theory.vector_tail(0, 1.0, 10), "d=0"),
        (lambda: theory.vector_tail(2.5, 1.0, 10), r"d=2\.5"),
        (lambda: theory.vector_tail(2, 0.0, 10), r"bound=0\.0"),
        (lambda: theory.vector_tail(2, float("nan"), 10), "bound=nan"),
        (lambda: theory.vector_tail(2, float("inf"), 10), "bound=inf"),
        (lambda: theory.vector_tail(2, True, 10), "bound=True"),
        (lambda: theory.vector_tail(2, 1.0), "N=None"),
        (lambda: theory.vector_tail(2, 1.0, 0), "N=0"),
        (lambda: theory.vector_tail(2, 1.0, 10, statement="best"), "statement='best'"),
        (lambda: theory.vector_tail(2, 1.0, 10).size(0.0, 0.1), r"t=0\.0"),
        (lambda: theory.vector_tail(2, 1.0, 10).size(-1.0, 0.1), r"t=-1\.0"),
        (lambda: theory.vector_tail(2, 1.0, 10).size(0.1, 0.0), r"delta=0\.0"),
        (lambda: theory.vector_tail(2, 1.0, 10).size(0.1, 1.0), r"delta=1\.0"),
        (lambda: theory.vector_tail(2, 1.0, 10).size(0.1, float("nan")), "delta=nan"),
        (lambda: theory.vector_tail(2, 1.0, 10).failure(11, 0.1), "n=11"),
        (lambda: theory.vector_tail(2, 1.0, 10).failure(0, 0.1), "n=0"),
        (lambda: theory.vector_tail(2, 1.0, replacement=True).size(1e-200, 0.1), "too small"),
        (lambda: theory.vector_tail(2, 1.0, replacement=True, paper=True).size(1e-200, 0.1), "too small"),
        (lambda: theory.vector_bernstein(2, 1.0, replacement=True).size(1e-200, 0.1, 0.1), "too small"),
        (lambda: theory.matrix_tail(2, None, 10), "either bound"),
        (lambda: theory.matrix_tail(2, 1.0, 10, width=1.0), "either bound"),
        (lambda: theory.matrix_tail(2, N=10, width=1.0, columns=3), "not a width"),
        (lambda: theory.tensor_tail((2, 3), 1.0, 10, symmetric=False), "each of the 3 modes"),
        (lambda: theory.tensor_tail((2, 2, 3), 1.0, 10), "equal dimensions"),
        (lambda: theory.tensor_tail(2, 1.0, 10, order=0), "order=0"),
        (lambda: theory.vector_bernstein(2, 1.0, 10).accuracy(11, 0.1, 0.1), "n=11"),
        (lambda: theory.vector_bernstein(2, 1.0, 10).accuracy(5, 0.1, -0.1), r"variance=-0\.1"),
        (lambda: theory.vector_bernstein(2, 1.0, 10).accuracy(5, 0.1, float("nan")), "variance=nan"),
        (lambda: theory.tensor_bernstein(2, -1.0, 10), r"width=-1\.0"),
    ],
)
def test_bad_input_is_refused_by_name(call, match):
    with pytest.raises(ValueError, match=match):
        call()
