"""Whatever is passed for a setting, an array or a file is taken rightly or refused with a ValueError that names it."""

import os
import socket
import threading
from dataclasses import fields
from decimal import Decimal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import tercet
from tercet import checks
from tercet.datasets import load_libsvm
from tercet.objectives import losses
from tercet.sampling import Ranges, Theory
from tercet.scipy import stm

ODD = [
    None, True, False, np.True_, "1", "x", b"1", -1, 0, -0.5, np.nan, np.inf, -np.inf, 1e308, 10**400, 1j, Decimal(1),
    [], [1.0], (1.0, 2.0), (0.1, "a", 2.0), {}, object(), int, np.zeros(2), np.array(1.0), np.ma.masked, Ellipsis,
]  # fmt: skip
RANGES = Ranges(1.0, 1.0, 1.0)
PARTS = {
    tercet.STM: {}, tercet.SCR: {}, tercet.SGD: {}, tercet.Full: {}, tercet.Fixed: {}, tercet.Growing: {},
    tercet.Adaptive: {}, tercet.Progressive: {}, Theory: {"eps": 1e-3, "delta": 0.1, "ranges": RANGES},
    Ranges: {"gradient": 1.0, "hessian": 1.0, "third": 1.0}, tercet.Dense: {}, tercet.Krylov: {}, tercet.Subspace: {},
    tercet.GradientDescent: {}, tercet.Accelerated: {}, tercet.PaperSigma: {}, tercet.SignedEstimate: {},
    tercet.Reduced: {}, tercet.AcceleratedTensor: {}, tercet.AcceleratedCubic: {}, tercet.NearOptimal: {},
    losses.Cauchy: {}, losses.Welsch: {}, losses.GemanMcClure: {},
}  # fmt: skip
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
Y = (X @ np.ones(3) + RNG.standard_normal(40) > 0).astype(float)


def attempt(call, *arguments, **named):
    """What a call gives, or what its ValueError says."""
    try:
        return call(*arguments, **named), None
    except ValueError as error:
        return None, str(error)


def runs(method):
    """A method that was not refused comes back from a short run with a status."""
    tercet.minimize(tercet.LinearModel(X, Y, "logistic", l2=1e-2), np.ones(3), method=method, max_iterations=3)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_setting_of_every_part_is_refused_by_name_or_works(part):
    for field in fields(part):
        if not field.init:
            continue
        for odd in ODD:
            made, said = attempt(part, **{**PARTS[part], field.name: odd})
            if said is not None:
                assert part.__name__ in said
                assert field.name in said
                continue
            with np.errstate(all="ignore"):
                if part in (tercet.STM, tercet.SCR, tercet.SGD, tercet.AcceleratedTensor, tercet.AcceleratedCubic):
                    runs(made)
                elif part is tercet.Reduced:
                    runs(tercet.STM(tercet.Fixed(), policy=made))
                elif hasattr(made, "prepare"):
                    runs(tercet.STM(tercet.Full(), made))
                elif hasattr(made, "eta1"):
                    runs(tercet.STM(sigma=made))
                elif hasattr(made, "first"):
                    runs(tercet.STM(made))


@pytest.mark.parametrize("start", [np.inf, np.nan, -1.0, True, "1", None, 10**400])
def test_a_sigma_to_begin_with_is_a_positive_number(start):
    for rule in (tercet.SignedEstimate, tercet.PaperSigma):
        with pytest.raises(ValueError, match=r"start="):
            rule(start=start)


def test_every_argument_of_minimize_is_refused_by_name_or_works():
    problem = tercet.LinearModel(X, Y, l2=1e-2)
    names = ["method", "tol", "order", "seed", "max_iterations", "max_seconds", "max_epochs", "callback", "checkpoint"]
    for name in [*names, "checkpoint_every", "check_derivatives", "hess", "x0"]:
        for odd in [*ODD, 0.5, 2.0, tercet.STM]:
            if (name == "checkpoint" and isinstance(odd, str)) or (name == "callback" and isinstance(odd, type)):
                continue  # these are files, and functions
            arguments = {"x0": np.ones(3), "max_iterations": 3, name: odd}
            _, said = attempt(tercet.minimize, problem, **arguments)
            assert said is None or name in said


@pytest.mark.parametrize("name", ["l2", "alpha", "scale", "weights", "intercept", "loss", "X", "y"])
def test_every_argument_of_a_linear_model_is_refused_by_name_or_works(name):
    for odd in ODD:
        arguments = {"X": X, "y": Y, "loss": "cauchy", name: odd}
        problem, said = attempt(tercet.LinearModel, **arguments)
        assert said is None or name in said
        assert said is not None or np.isfinite(problem.over(None).at(np.zeros(problem.d)).value())


MASKED = np.ma.masked_array(X, mask=X > 1.0)
NO_NUMBERS = {
    "masked": MASKED,
    "a list of masked rows": list(MASKED),
    "numeric strings": X.astype(str),
    "numeric bytes": X.astype("S20"),
    "objects that are strings": X.astype(str).astype(object),
    "objects with None": np.where(X > 1.0, None, X.astype(object)),
    "complex": X + 0j,
    "objects that are complex": (X + 1j).astype(object),
    "dates": X.astype("M8[s]"),
    "a dictionary": {"a": X},
    "ragged": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_only_looks_like_numbers_is_refused_as_data_weights_and_start(kind):
    bad = NO_NUMBERS[kind]
    with pytest.raises(ValueError, match="X"):
        tercet.LinearModel(bad, Y)
    problem = tercet.LinearModel(X, Y)
    if kind in ("ragged", "a list of masked rows", "a dictionary"):
        return
    column = bad[:, 0]
    for name in ("y", "weights"):
        with pytest.raises(ValueError, match=name):
            tercet.LinearModel(X, **{"y": Y, name: column})
    start = column[:3] if kind != "masked" else MASKED[np.any(MASKED.mask, axis=1)][0]
    with pytest.raises(ValueError, match="x0"):
        tercet.minimize(problem, start)


def test_a_masked_array_without_masked_entries_and_objects_that_are_numbers_are_data():
    plain = tercet.LinearModel(X, Y, "logistic").fingerprint()
    assert tercet.LinearModel(np.ma.masked_array(X), np.ma.masked_array(Y), "logistic").fingerprint() == plain
    assert tercet.LinearModel(X.astype(object), Y.astype(object), "logistic").fingerprint() == plain


# sparse matrices ------------------------------------------------------------------------------------------------------


TABLE = np.where(RNG.random((6, 5)) < 0.5, RNG.standard_normal((6, 5)), 0.0)
TABLE[0, :2] = 1.0


def broken(draw, form):
    """A sparse matrix whose arrays were changed behind SciPy's back, and whether it still means something."""
    dense = TABLE.copy()
    A = sp.csr_array(dense) if form == "csr" else sp.csc_array(dense) if form == "csc" else sp.coo_array(dense)
    arrays = ["row", "col"] if form == "coo" else ["indices", "indptr"]
    name = draw(st.sampled_from(arrays))
    array = getattr(A, name) if form != "coo" else A.coords[arrays.index(name)]
    place, value = draw(st.integers(0, len(array) - 1)), draw(st.integers(-7, 99))
    array[place] = value
    return A


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_sparse_matrix_with_any_changed_index_is_refused_or_is_the_matrix_that_it_says(data):
    A = broken(data.draw, data.draw(st.sampled_from(["csr", "csc", "coo"])))
    y = np.array([0.0, 1.0] * 3)
    problem, said = attempt(tercet.LinearModel, A, y, "logistic", l2=0.1)
    if said is not None:
        assert "X" in said
        return
    means = np.zeros(A.shape)
    entries = checks.valid_indices(A).tocoo()
    np.add.at(means, entries.coords, entries.data)
    expected = tercet.LinearModel(means, y, "logistic", l2=0.1).over(None).at(np.ones(5))
    point = problem.over(None).at(np.ones(5))
    assert point.value() == pytest.approx(expected.value(), rel=1e-12)
    np.testing.assert_allclose(point.hessian(), expected.hessian(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("index", [99, -5, 5])
def test_an_index_out_of_range_is_refused_wherever_a_matrix_enters(index):
    from tercet.sklearn import RobustClassifier, RobustRegressor

    A = sp.csr_matrix(np.eye(8)[:, :5] + 0.1)
    y = np.array([0, 1] * 4)
    fitted = [RobustClassifier().fit(A, y), RobustRegressor("squares", l2=0.1).fit(A, y.astype(float))]
    bad = A.copy()
    bad.indices[3] = index
    for estimator in fitted:
        for call in (lambda e: e.fit(bad, y), lambda e: e.predict(bad), lambda e: e.standard_errors(bad, y)):
            with pytest.raises(ValueError, match="sparse matrix"):
                call(estimator)
    with pytest.raises(ValueError, match="sparse matrix"):
        tercet.LinearModel(A, y).margins(bad, np.zeros(5))
    with pytest.raises(ValueError, match="sparse matrix"):
        tercet.LinearModel(bad, y)
    H = sp.csr_array(np.eye(3))
    H.indices[0] = index
    with pytest.raises(ValueError, match="sparse matrix"):
        stm(lambda x: x @ x / 2, np.ones(3), jac=lambda x: x, hess=lambda x: H)


@pytest.mark.parametrize("last", [0, -1, -7, 2])
def test_an_indptr_that_falls_at_its_end_is_refused(last):
    for form in (sp.csr_array, sp.csc_array):
        A = form(TABLE)
        A.indptr[-1] = last
        with pytest.raises(ValueError, match="sparse matrix"):
            tercet.LinearModel(A, np.array([0.0, 1.0] * 3))


def test_what_scipy_remembers_of_the_order_of_indices_is_not_believed():
    A = sp.csr_array(X)
    assert A.has_canonical_format
    A.indices[:3] = [2, 0, 1]  # SciPy still believes them to be sorted
    plain = X.copy()
    plain[0] = X[0][[1, 2, 0]]
    one, other = (tercet.LinearModel(data, Y, "logistic").over(None).at(np.ones(3)) for data in (A, plain))
    np.testing.assert_allclose(one.hessian(), other.hessian(), rtol=1e-12)


# large and small numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squares", "logistic", "sigmoid_squares", "cauchy"])
@pytest.mark.parametrize("power", [-300, -160, -100, -60, 60, 85, 100, 160, 300])
def test_data_of_any_size_is_refused_by_name_or_gives_a_result(loss, power):
    for sparse in (False, True):
        data = X * 10.0**power
        problem, said = attempt(tercet.LinearModel, sp.csr_array(data) if sparse else data, Y, loss, l2=1e-3)
        if said is not None:
            assert power > 60
            assert "rescale" in said
            continue
        with np.errstate(all="ignore"):
            result = tercet.minimize(problem, np.ones(3), max_iterations=30)
        assert np.all(np.isfinite(result.x))


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1e308])
def test_weights_of_any_size_are_normalized(size):
    w = np.arange(1.0, 41.0)
    one, other = (tercet.LinearModel(X, Y, weights=v).rows.w for v in (w, w / 40.0 * size))
    np.testing.assert_allclose(one, other, rtol=1e-2 if size < 1e-300 else 1e-12)


# files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def odd_files(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        yield [tmp_path / "fifo", tmp_path / "folder", tmp_path / "s", "/dev/zero", "/dev/null"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_what_is_no_regular_file_is_refused_at_once(odd_files):
    problem = tercet.LinearModel(X, Y)
    for path in odd_files:
        for call in (load_libsvm, tercet.load, lambda p: tercet.resume(p, problem)):
            with pytest.raises(ValueError, match=r"folder|FIFO|socket|device"):
                call(path)
        with pytest.raises(ValueError, match=r"checkpoint=.*(folder|FIFO|socket|device)"):
            tercet.minimize(problem, checkpoint=path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_a_fifo_that_somebody_writes_to_is_read(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    ready = os.open(path, os.O_RDWR)  # so that the writer need not wait for the reader
    writer = threading.Thread(target=lambda: os.write(ready, b"1 1:2\n0 2:3\n"))
    writer.start()
    writer.join()
    closer = threading.Timer(0.2, os.close, [ready])
    closer.start()
    A, y = load_libsvm(path)
    closer.join()
    assert A.toarray().tolist() == [[2.0, 0.0], [0.0, 3.0]]
    assert y.tolist() == [1.0, 0.0]
