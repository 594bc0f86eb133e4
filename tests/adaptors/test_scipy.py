"""tercet.scipy: SciPy's conventions, SciPy's own problems and tests, and counts that are the user's calls."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from scipy.optimize import OptimizeResult, rosen, rosen_der, rosen_hess, rosen_hess_prod
from scipy.sparse.linalg import aslinearoperator

import tercet
from tercet.scipy import CODES, InterruptError, Options, Solver, certify, scr, stm

START = np.array([-1.2, 1.0, 0.7])


class Counting:
    """A function that knows how often it was called, and that it was called with NumPy vectors."""

    def __init__(self, call):
        self.call, self.calls = call, 0

    def __call__(self, *arguments):
        assert all(type(a) is np.ndarray and a.dtype == np.float64 for a in arguments)
        self.calls += 1
        return self.call(*arguments)


def rosen_third(x):
    """The third derivative of sum 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2."""
    d = len(x)
    T = np.zeros((d, d, d))
    for i in range(d - 1):
        T[i, i, i] += 2400 * x[i]
        for a, b, c in ((i, i, i + 1), (i, i + 1, i), (i + 1, i, i)):
            T[a, b, c] -= 400
    return T


def test_the_third_derivative_of_this_file_is_that_of_rosen():
    rng = np.random.default_rng(0)
    x, v, h = rng.standard_normal(4), rng.standard_normal(4), 1e-4
    difference = (rosen_hess(x + h * v) - rosen_hess(x - h * v)) / (
        2 * h
    )  # exact: rosen is quartic, its Hessian quadratic
    np.testing.assert_allclose(rosen_third(x) @ v, difference, rtol=1e-7, atol=1e-7)


# the same run as tercet.minimize ------------------------------------------------------------------------------------

GIVEN = [
    ({"jac": rosen_der}, {}),
    ({"jac": rosen_der, "hess": rosen_hess}, {}),
    ({"jac": rosen_der, "hessp": rosen_hess_prod}, {}),
    ({"jac": rosen_der, "hess": rosen_hess}, {"third": rosen_third}),
    ({"jac": rosen_der, "hess": rosen_hess}, {"tvp": lambda x, u, v: rosen_third(x) @ u @ v}),
]
NAMES = {"jac": "grad", "hessp": "hvp"}


@pytest.mark.parametrize(("method", "native"), [(stm, tercet.STM()), (scr, tercet.SCR())])
@pytest.mark.parametrize(("derivatives", "options"), GIVEN)
def test_the_run_is_that_of_tercet_minimize(method, native, derivatives, options):
    ours = {NAMES.get(name, name): call for name, call in derivatives.items()} | options
    known = tercet.minimize(rosen, START, method=native, tol=1e-9, seed=3, **ours)
    r = scipy.optimize.minimize(rosen, START, method=method, tol=1e-9, options={"seed": 3, **options}, **derivatives)
    np.testing.assert_array_equal(r.x, known.x)
    assert (r.fun, r.nit, r.message, r.success) == (known.fun, known.nit, known.message, True)
    assert r.certificate == known.certificate
    assert r.tercet.counts == known.counts
    assert r.tercet.method == repr(native)


@pytest.mark.parametrize(("derivatives", "options"), [*GIVEN, ({}, {}), ({"jac": True}, {})])
def test_the_counts_are_the_calls_of_the_functions(derivatives, options):
    joint = derivatives.get("jac") is True
    fun = Counting((lambda x: (rosen(x), rosen_der(x))) if joint else rosen)
    counted = {name: call if call is True else Counting(call) for name, call in derivatives.items()}
    more = {name: Counting(call) for name, call in options.items()}
    r = scipy.optimize.minimize(fun, START, method=stm, options=more, **counted)
    assert r.success

    def calls(*names):
        return sum((counted | more)[name].calls for name in names if name in counted | more)

    assert r.nfev == fun.calls
    assert r.njev == (fun.calls if joint else calls("jac"))
    assert r.nhev == calls("hess", "hessp")
    assert r.ntev == calls("third", "tvp")


def test_value_and_gradient_together_are_called_once_a_point():
    seen = set()

    def both(x):
        assert x.tobytes() not in seen
        seen.add(x.tobytes())
        return rosen(x), rosen_der(x)

    hess = Counting(rosen_hess)
    r = scipy.optimize.minimize(both, START, jac=True, hess=hess, method=scr)
    assert r.success
    assert r.nfev == r.njev == len(seen) >= r.nit + 1  # the certificate looks beside x
    direct = scr(lambda x: (rosen(x), rosen_der(x)), START, jac=True, hess=rosen_hess)
    np.testing.assert_array_equal(direct.x, r.x)


def test_the_derivatives_in_the_result_are_those_at_x_and_cost_no_further_call():
    jac, hess = Counting(rosen_der), Counting(rosen_hess)
    r = scipy.optimize.minimize(rosen, START, jac=jac, hess=hess, method=stm, options={"third": rosen_third})
    np.testing.assert_array_equal(r.jac, rosen_der(r.x))
    np.testing.assert_array_equal(r.hess, rosen_hess(r.x))
    assert r.certificate.chi1 == np.linalg.norm(r.jac)
    assert jac.calls == r.tercet.counts.gradient
    assert hess.calls == r.tercet.counts.hessian
    assert "hess" not in scipy.optimize.minimize(rosen, np.ones(80), jac=rosen_der, hessp=rosen_hess_prod, method=stm)


# what SciPy hands on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [(3.0,), 3.0])
def test_args_go_to_every_function_behind_its_vectors(args):
    def fun(x, a):
        return np.sum(np.cosh(x - a)) + x[0]

    def hessp(x, p, a):
        return np.cosh(x - a) * p

    r = scipy.optimize.minimize(
        fun, np.zeros(3), args, method=stm, jac=lambda x, a: np.sinh(x - a) + np.eye(3)[0], hessp=hessp,
        options={"tvp": lambda x, u, v, a: np.sinh(x - a) * u * v},
    )  # fmt: skip
    assert r.success
    np.testing.assert_allclose(r.x, [3 - np.arcsinh(1.0), 3, 3], atol=1e-8)


@pytest.mark.parametrize("words", [{}, {"jac": None}, {"jac": "2-point"}, {"jac": "3-point", "hess": "2-point"}])
def test_what_is_missing_is_made_by_differences_and_the_message_says_so(words):
    r = scipy.optimize.minimize(rosen, START, method=stm, **words)
    assert r.success
    assert "gradient, Hessian, third derivative by differences" in r.message
    np.testing.assert_allclose(r.x, 1.0, atol=1e-6)


def test_products_of_the_hessian_are_used_where_the_hessian_is_left_to_differences():
    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, hess="3-point", hessp=rosen_hess_prod, method=stm)
    assert r.success
    assert r.nhev > 0


def test_the_hessian_goes_before_its_products():
    hessp = Counting(rosen_hess_prod)
    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, hess=rosen_hess, hessp=hessp, method=stm)
    assert r.success
    assert hessp.calls == 0


def chain(x):
    """A quartic in a chain: its Hessian is tridiagonal."""
    return np.sum((x - 1) ** 4) / 4 + np.sum((x - 1) ** 2) / 2 + np.sum(np.diff(x) ** 2) / 2


def chain_der(x):
    g = (x - 1) ** 3 + (x - 1)
    g[1:] += np.diff(x)
    g[:-1] -= np.diff(x)
    return g


def chain_hess(x):
    ends = np.r_[1.0, np.full(len(x) - 2, 2.0), 1.0]
    off = np.full(len(x) - 1, -1.0)
    return sp.diags_array([3 * (x - 1) ** 2 + 1 + ends, off, off], offsets=[0, 1, -1])


@pytest.mark.parametrize("form", [lambda H: H, sp.csr_matrix, aslinearoperator, lambda H: H.toarray()])
@pytest.mark.parametrize("d", [5, 1500])
def test_a_hessian_may_be_an_array_a_sparse_matrix_or_an_operator(form, d):
    hess = Counting(lambda x: form(chain_hess(x)))
    tvp = {"tvp": lambda x, u, v: 6 * (x - 1) * u * v}
    r = scipy.optimize.minimize(chain, np.zeros(d), jac=chain_der, hess=hess, method=stm, options=tvp)
    assert r.success
    np.testing.assert_allclose(r.x, 1.0, atol=1e-7)
    assert r.nhev == hess.calls <= 2 * r.nit + 2


@pytest.mark.parametrize("x0", [0.3, [0.3], np.float32(0.3), np.array([0.3], dtype=np.float32), 1, [1], (True,)])
def test_a_start_is_a_number_or_a_vector_of_any_real_type(x0):
    """With one variable SciPy also lets the functions return numbers or arrays of one entry."""
    r = scipy.optimize.minimize(
        lambda x: np.cosh(x - 2), x0, jac=lambda x: np.sinh(x[0] - 2), hess=lambda x: np.cosh(x[0] - 2), method=stm
    )
    assert r.success
    assert (r.x.shape, r.x.dtype, type(r.fun), r.jac.shape, r.hess.shape) == ((1,), np.float64, float, (1,), (1, 1))
    np.testing.assert_allclose(r.x, 2.0, atol=1e-8)


def test_functions_may_spoil_their_argument_and_use_one_buffer():
    buffer = np.zeros(3)

    def jac(x):
        buffer[:] = rosen_der(x)
        x[:] = np.nan
        return buffer

    known = scipy.optimize.minimize(rosen, START, jac=rosen_der, hess=rosen_hess, method=stm)
    r = scipy.optimize.minimize(rosen, START, jac=jac, hess=rosen_hess, method=stm)
    np.testing.assert_array_equal(r.x, known.x)

    def both(x):
        return rosen(x), jac(x)

    with_both = scipy.optimize.minimize(both, START, jac=True, hess=rosen_hess, method=stm)
    np.testing.assert_array_equal(with_both.x, known.x)


# options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxitr": 3}, "'maxitr'.*maxiter"),
        ({"ftol": 3}, "'ftol'.*gtol"),
        ({"zzz": 3}, "'zzz'.*check_derivatives"),
        ({"maxiter": 3, "max_iterations": 4}, "both are the iteration budget"),
        ({"third": rosen_third, "tvp": rosen_third}, "one of the two"),
        ({"third": 3}, r"third=3.*give a function"),
        ({"gtol": -1.0}, "tol=-1.0"),
        ({"order": 4}, "order=4"),
        ({"seed": -1}, "seed=-1"),
        ({"max_seconds": 0}, "max_seconds=0"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, words):
    fun = Counting(rosen)
    with pytest.raises(ValueError, match=words):
        scipy.optimize.minimize(fun, START, method=stm, options=options)
    assert fun.calls == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bounds": [(0, 2)] * 2}, "2 pairs for 3 variables"),
        ({"bounds": [(2, 0)] * 3}, "cross"),
        ({"constraints": {"type": "eq", "fun": rosen}}, "without constraints"),
        ({"constraints": scipy.optimize.LinearConstraint(np.eye(3), 0, 1)}, "without constraints"),
        ({"hess": scipy.optimize.BFGS()}, "hess=.*BFGS.*leave it out"),
        ({"hess": "cs"}, "hess='cs'.*leave it out"),
        ({"hessp": 3}, "hessp=3"),
        ({"callback": 3}, "callback=3"),
        ({"fun": 3}, "fun=3"),
        ({"x0": np.ones((3, 1))}, "one dimension"),
        ({"x0": [1.0, np.nan]}, r"x0\[1\] is not finite"),
        ({"x0": ["a"]}, "real numbers"),
    ],
)
def test_arguments_that_it_cannot_take_are_refused_before_any_call(arguments, words):
    fun = Counting(rosen)
    with pytest.raises(ValueError, match=words):
        scipy.optimize.minimize(**({"fun": fun, "x0": START, "method": stm} | arguments))
    assert fun.calls == 0


@pytest.mark.parametrize("nothing", [(), [], None])
def test_no_constraints_are_no_constraints(nothing):
    assert scipy.optimize.minimize(rosen, START, jac=rosen_der, method=stm, constraints=nothing).success


def test_tol_gtol_and_the_order_say_what_the_certificate_asks():
    def asked(jac=rosen_der, **arguments):
        c = scipy.optimize.minimize(rosen, START, jac=jac, hess=rosen_hess, method=stm, **arguments).certificate
        return c.eps1 or c.relative, c.order

    assert asked() == (np.finfo(float).eps ** 0.5, 3)
    assert asked(jac=None) == (1e-5, 3)
    assert asked(jac=None, tol=1e-7) == (1e-7, 3)
    assert asked(tol=1e-5) == (1e-5, 3)
    assert asked(options={"gtol": 1e-4, "order": 2}) == (1e-4, 2)
    assert asked(tol=1e-5, options={"gtol": 1e-4}) == (1e-4, 3)


@pytest.mark.parametrize("name", ["maxiter", "max_iterations"])
def test_the_iteration_budget_under_both_names(name):
    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, method=stm, options={name: 4, "return_all": True})
    assert (r.nit, r.status, r.success, len(r.allvecs)) == (4, 1, False, 5)
    np.testing.assert_array_equal(r.allvecs[0], START)
    np.testing.assert_array_equal(r.allvecs[-1], r.x)
    assert all(rosen(b) <= rosen(a) for a, b in zip(r.allvecs, r.allvecs[1:], strict=False))


def test_disp_prints_what_was_found_and_nothing_is_printed_else(capsys):
    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, hess=rosen_hess, method=stm)
    assert capsys.readouterr() == ("", "")
    scipy.optimize.minimize(rosen, START, jac=rosen_der, hess=rosen_hess, method=stm, options={"disp": True})
    printed = capsys.readouterr().out
    assert printed.startswith(r.message)
    assert f"Iterations: {r.nit}" in printed
    assert f"Hessian evaluations: {r.nhev}" in printed
    assert "chi3" in printed


def test_derivatives_are_checked_where_that_is_asked_for():
    with pytest.raises(ValueError, match="gradient"):
        scipy.optimize.minimize(
            rosen, START, jac=lambda x: 1.01 * rosen_der(x), method=stm, options={"check_derivatives": True}
        )


def test_a_method_with_other_parts():
    method = Solver(tercet.STM(sigma=tercet.PaperSigma(), worth=np.inf))
    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, hess=rosen_hess, method=method)
    assert r.success
    assert "PaperSigma" in r.tercet.method


# how runs end -------------------------------------------------------------------------------------------------------


def test_every_status_has_a_number_of_its_own():
    assert set(CODES) == set(tercet.Status)
    assert len(set(CODES.values())) == len(CODES)


def test_values_that_are_not_finite():
    r = scipy.optimize.minimize(lambda x: np.nan, [1.0, 2.0], method=stm)
    assert (r.status, r.success) == (CODES[tercet.Status.NOT_FINITE], False)
    assert np.isnan(r.fun)
    assert np.all(np.isnan(r.jac))
    np.testing.assert_array_equal(r.x, [1.0, 2.0])


def test_a_function_that_raises_leaves_the_best_point():
    def fun(x):
        if fun.left == 0:
            raise RuntimeError("out of service")
        fun.left -= 1
        return rosen(x)

    fun.left = 5
    r = scipy.optimize.minimize(fun, START, jac=rosen_der, hess=rosen_hess, method=stm)
    assert (r.status, r.success) == (7, False)
    assert "RuntimeError: out of service" in r.message
    assert isinstance(r.tercet.error, RuntimeError)
    assert r.fun == rosen(r.x) < rosen(START)


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("call", [1, 2, 5, 9])
def test_an_interruption_is_raised_with_the_best_point_or_returns_it_where_that_is_asked_for(call, returns):
    def jac(x):
        jac.calls += 1
        if jac.calls == call:
            raise KeyboardInterrupt
        return rosen_der(x)

    jac.calls = 0
    options = {"return_on_interrupt": True} if returns else {}
    arguments = {"jac": jac, "hess": rosen_hess, "method": stm, "options": options}
    if returns:
        r = scipy.optimize.minimize(rosen, START, **arguments)
    else:
        with pytest.raises(InterruptError, match="interrupted after") as interruption:
            scipy.optimize.minimize(rosen, START, **arguments)
        r = interruption.value.result
        assert isinstance(interruption.value, KeyboardInterrupt)
    assert (r.status, r.success) == (8, False)
    assert r.fun == rosen(r.x) <= rosen(START)
    assert call < 5 or r.fun < rosen(START)


def test_a_function_that_raises_at_x0_raises_to_the_caller():
    def fun(x):
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data") as error:
        scipy.optimize.minimize(fun, START, jac=rosen_der, method=stm)
    assert "at x0" in error.value.__notes__[0]


def test_callbacks_of_both_styles_and_of_any_answer():
    seen, told = [], []

    def told_by_name(*, intermediate_result):
        assert isinstance(intermediate_result, OptimizeResult)
        told.append(intermediate_result)
        return True  # SciPy's methods do not look at it

    arguments = {"jac": rosen_der, "hess": rosen_hess, "method": stm}
    r = scipy.optimize.minimize(rosen, START, callback=lambda xk: seen.append(xk) or True, **arguments)
    named = scipy.optimize.minimize(rosen, START, callback=told_by_name, **arguments)
    assert r.success
    assert named.success
    assert len(seen) == len(told) == r.nit
    np.testing.assert_array_equal(seen, [t.x for t in told])
    assert [t.fun for t in told] == [rosen(x) for x in seen]
    assert [t.nit for t in told] == list(range(1, r.nit + 1))
    seen[-1][:] = np.nan  # what a callback was given is its own
    assert np.all(np.isfinite(r.x))


def test_stop_iteration_ends_the_run_and_other_exceptions_pass():
    def stop(xk):
        raise StopIteration

    def fail(xk):
        raise ZeroDivisionError

    r = scipy.optimize.minimize(rosen, START, jac=rosen_der, callback=stop, method=stm)
    assert (r.nit, r.status, r.success) == (1, 99, False)
    assert r.message.startswith("`callback` raised `StopIteration`")
    limited = scipy.optimize.minimize(rosen, START, jac=rosen_der, method=stm, options={"maxiter": 1})
    np.testing.assert_array_equal(r.x, limited.x)
    with pytest.raises(ZeroDivisionError):
        scipy.optimize.minimize(rosen, START, jac=rosen_der, callback=fail, method=stm)


def test_it_leaves_a_degenerate_saddle_where_a_trust_region_stays():
    def fun(x):
        return x[0] ** 3 - 3 * x[0] * x[1] ** 2 + (x[0] ** 2 + x[1] ** 2) ** 2

    def jac(x):
        r = 4 * (x[0] ** 2 + x[1] ** 2)
        return np.array([3 * x[0] ** 2 - 3 * x[1] ** 2 + r * x[0], -6 * x[0] * x[1] + r * x[1]])

    def hess(x):
        a, b = x
        return np.array(
            [[6 * a + 12 * a**2 + 4 * b**2, -6 * b + 8 * a * b], [-6 * b + 8 * a * b, -6 * a + 4 * a**2 + 12 * b**2]]
        )

    r = scipy.optimize.minimize(fun, [0.0, 0.0], jac=jac, hess=hess, method=stm)
    assert r.success
    assert r.fun == pytest.approx(-27 / 256)  # min -r^3 + r^4
    assert scipy.optimize.minimize(fun, [0.0, 0.0], jac=jac, hess=hess, method="trust-exact").fun == 0.0


# in SciPy's global methods ------------------------------------------------------------------------------------------


def test_basin_hopping():
    def fun(x):  # SciPy's own example
        return np.cos(14.5 * x[0] - 0.3) + (x[1] + 0.2) * x[1] + (x[0] + 0.2) * x[0]

    def both(x):
        return fun(x), np.array([-14.5 * np.sin(14.5 * x[0] - 0.3) + 2 * x[0] + 0.2, 2 * x[1] + 0.2])

    r = scipy.optimize.basinhopping(
        both, [1.0, 1.0], niter=50, rng=np.random.default_rng(1), minimizer_kwargs={"method": stm, "jac": True}
    )
    np.testing.assert_allclose(r.x, [-0.195, -0.1], atol=1e-3)
    assert r.minimization_failures == 0
    assert r.lowest_optimization_result.certificate.holds


def test_dual_annealing():
    def rastrigin(x):
        return np.sum(x * x - 10 * np.cos(2 * np.pi * x)) + 10 * np.size(x)

    r = scipy.optimize.dual_annealing(
        rastrigin, [(-5.12, 5.12)] * 2, maxiter=50, rng=np.random.default_rng(1), minimizer_kwargs={"method": stm}
    )
    np.testing.assert_allclose(r.x, 0.0, atol=1e-6)


# SciPy's own problems and tests, with our method in the place of theirs -----------------------------------------------


def scipy_tests(name):
    """One of SciPy's test modules, where they are installed; their own pytest marks are not known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)
        return pytest.importorskip(f"scipy.optimize.tests.{name}")


@pytest.mark.parametrize("method", [stm, scr])
@pytest.mark.parametrize("given", [(), ("jac",), ("jac", "hess"), ("jac", "hessp")])
def test_scipys_own_problems(given, method):
    tests = scipy_tests("test_optimize")
    entropy = tests.CheckOptimize()
    entropy.setup_method()
    problems = [
        (entropy.func, entropy.startparams, {"jac": entropy.grad, "hess": entropy.hess, "hessp": entropy.hessp},
         entropy.func(entropy.solution)),
        (tests.himmelblau, tests.himmelblau_x0, {"jac": tests.himmelblau_grad, "hess": tests.himmelblau_hess,
         "hessp": lambda x, p: tests.himmelblau_hess(x) @ p}, tests.himmelblau_min),
        (rosen, START, {"jac": rosen_der, "hess": rosen_hess, "hessp": rosen_hess_prod}, 0.0),
        (rosen, np.linspace(-1, 2, 20), {"jac": rosen_der, "hess": rosen_hess, "hessp": rosen_hess_prod}, 0.0),
    ]  # fmt: skip
    for fun, x0, derivatives, lowest in problems:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # entropy, where it is looked at far out
            r = scipy.optimize.minimize(fun, x0, method=method, **{name: derivatives[name] for name in given})
        # f - f* is about |g|^2 / (2 lambda_min), and lambda_min is 0.4 or more but for a direction that is flat
        assert r.fun == pytest.approx(lowest, abs=max(1e-12, 2 * r.certificate.eps1**2)), fun
        assert r.success
        assert r.certificate.strict == (fun != entropy.func)
        if fun == entropy.func:  # which does not depend on its x_0: only rounding could move it
            assert r.certificate.involved == (0,)
            assert "jac" not in given or abs(r.x[0]) <= 1e-12


AS_IT_IS = [
    ("test_trustregion", "TestTrustRegionSolvers", "test_dogleg_accuracy", ()),
    ("test_trustregion", "TestTrustRegionSolvers", "test_dogleg_callback", ()),
    ("test_trustregion", "TestTrustRegionSolvers", "test_trust_ncg_hessp", ()),
    ("test_trustregion", "TestTrustRegionSolvers", "test_trust_ncg_start_in_optimum", ()),
    ("test_optimize", "TestOptimizeSimple", "test_finite_differences_jac", ()),
    ("test_optimize", "TestOptimizeSimple", "test_bfgs_double_evaluations", ()),
    # not test_minimize_tol_parameter: our run to tol=1 ends where f is its minimum to the last digit, too
    ("test_optimize", "TestOptimizeSimple", "test_minimize_callback_copies_array", ("trust-exact",)),
    ("test_optimize", "TestOptimizeSimple", "test_no_increase", ("bfgs",)),
    ("test_optimize", "TestOptimizeSimple", "test_respect_maxiter", ("trust-exact",)),
    ("test_optimize", "TestOptimizeSimple", "test_minimize_coerce_args_param", ()),
    ("test_optimize", "TestOptimizeSimple", "test_ndim_error", ()),
    ("test_optimize", "TestNewtonCg", "test_rosenbrock", ()),
    ("test_optimize", "TestNewtonCg", "test_finite_difference", ()),
    ("test_optimize", "TestOptimizeResultAttributes", "test_attributes_present", ()),
    ("test_optimize", "TestOptimizeWrapperNoDisp", "test_cg_cornercase", ()),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the entropy problem overflows, where it is looked at far out
@pytest.mark.parametrize("method", [stm, scr])
@pytest.mark.parametrize(("module", "group", "name", "arguments"), AS_IT_IS)
def test_scipys_own_test_passes_with_our_method(module, group, name, arguments, method, monkeypatch):
    tests, theirs = scipy_tests(module), scipy.optimize.minimize
    used = []

    def ours(*args, **kwargs):
        used.append(kwargs)
        return theirs(*args, **(kwargs | {"method": method}))

    for place in (tests, scipy.optimize):
        if hasattr(place, "minimize"):
            monkeypatch.setattr(place, "minimize", ours)
    case = getattr(tests, group)()
    case.setup_method() if hasattr(case, "setup_method") else None
    getattr(case, name)(*arguments)
    assert used


def test_importing_tercet_does_not_import_it():
    code = "import sys, tercet; assert 'tercet.scipy' not in sys.modules; import tercet.scipy; tercet.scipy.stm"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert Options() == Options.of({})


# certify --------------------------------------------------------------------------------------------------------------


def hilly(p):
    return 0.5 * p[0] ** 2 - 0.5 * p[1] ** 2 + 0.25 * p[1] ** 4


def hilly_gradient(p):
    return np.array([p[0], -p[1] + p[1] ** 3])


def hilly_hessian(p):
    return np.diag([1.0, 3 * p[1] ** 2 - 1])


@pytest.mark.parametrize("derivatives", [(), (hilly_gradient,), (hilly_gradient, hilly_hessian)], ids=len)
def test_a_saddle_that_scipy_calls_a_success_is_told(derivatives):
    found = scipy.optimize.minimize(hilly, [1.0, 0.0], jac=hilly_gradient, method="L-BFGS-B")
    assert found.success
    certificate = certify(found, hilly, *derivatives)
    assert not certificate.holds
    assert hilly(found.x + np.array(certificate.way_down)) < found.fun - 0.01
    assert certify(np.array([0.0, 1.0]), hilly, *derivatives).holds


def test_arguments_and_third_derivatives_are_handed_on():
    def shifted(p, a):
        return hilly(p - a)

    a, T = np.array([1.0, 2.0]), np.zeros((2, 2, 2))
    T[1, 1, 1] = -6.0
    found = certify(
        a - [0.0, 1.0],
        shifted,
        lambda p, a: hilly_gradient(p - a),
        lambda p, a: hilly_hessian(p - a),
        args=(a,),
        third=lambda p, a: T,
    )
    assert found.holds


def test_a_result_without_a_point_is_refused():
    with pytest.raises(ValueError, match=r"certify\(result=.*no x"):
        certify(scipy.optimize.OptimizeResult(fun=1.0), hilly)


@pytest.mark.parametrize(
    "bounds", [[(None, None)] * 2, [(-np.inf, np.inf), (None, np.inf)], scipy.optimize.Bounds(-np.inf, [np.inf] * 2)]
)
def test_bounds_that_bound_nothing_are_taken(bounds):
    found = scipy.optimize.minimize(
        hilly, [1.0, 0.3], jac=hilly_gradient, hess=hilly_hessian, bounds=bounds, method=stm
    )
    assert found.success


@pytest.mark.parametrize("bounds", [[(1.2, None), (None, None)], scipy.optimize.Bounds([1.2, -9], [np.inf, 9])])
def test_bounds_are_kept(bounds):
    own = scipy.optimize.minimize(hilly, [1.5, 0.3], jac=hilly_gradient, bounds=bounds, method="L-BFGS-B", tol=1e-12)
    r = scipy.optimize.minimize(hilly, [1.5, 0.3], jac=hilly_gradient, hess=hilly_hessian, bounds=bounds, method=stm)
    assert r.success
    assert r.x[0] >= 1.2
    assert r.fun <= own.fun + 1e-9
    found = certify(r, hilly, hilly_gradient, hilly_hessian, bounds=bounds)
    assert found.holds
    assert found.active == r.certificate.active
