"""What is refused before any work, and what is inferred."""

import numpy as np
import pytest

import tercet
from tercet.objectives.device import model
from tests.objectives.device.libraries import LIBRARIES, data, place

X, Y, _ = data(60, 3)


def test_the_device_and_the_precision_are_those_of_x():
    torch = pytest.importorskip("torch")
    for kind, told in ((torch.float64, 2.2e-16), (torch.float32, 2.2e-16)):
        problem = tercet.LinearModel(torch.asarray(X, dtype=kind), torch.asarray(Y, dtype=kind))
        assert problem.traits.epsilon == pytest.approx(told, rel=0.01)
    narrow = tercet.LinearModel(torch.asarray(X, dtype=torch.float32), Y, accumulate="float32")
    assert narrow.traits.epsilon == pytest.approx(1.2e-7, rel=0.01)
    assert "sums in float32 on cpu" in narrow.traits.provenance


def test_a_float32_run_certifies_half_of_its_digits_and_says_so():
    torch = pytest.importorskip("torch")
    A, y, _ = data(4000, 6)
    exact = tercet.minimize(tercet.LinearModel(A.astype(np.float32).astype(float), y, "logistic", l2=1e-3))
    narrow = tercet.minimize(
        tercet.LinearModel(torch.asarray(A, dtype=torch.float32), y, "logistic", l2=1e-3, accumulate="float32")
    )
    wide = tercet.minimize(tercet.LinearModel(torch.asarray(A, dtype=torch.float32), y, "logistic", l2=1e-3))
    assert narrow.success
    assert narrow.certificate.relative == pytest.approx(np.sqrt(np.finfo(np.float32).eps))
    assert wide.success
    error = np.max(np.abs(narrow.x - exact.x) / np.abs(exact.x))
    assert error <= narrow.certificate.relative
    assert -np.log10(error) >= narrow.certificate.digits
    np.testing.assert_allclose(wide.x, exact.x, rtol=1e-7)


@pytest.mark.parametrize("library", LIBRARIES)
def test_results_come_in_the_library_of_x_on_request(library):
    there = place(library)
    problem = tercet.LinearModel(there(X), there(Y), l2=1e-2, returns="device")
    result = tercet.minimize(problem)
    assert type(result.x) is type(there(X))
    np.testing.assert_allclose(np.asarray(np.from_dlpack(result.x)), tercet.minimize(
        tercet.LinearModel(there(X), there(Y), l2=1e-2)).x)  # fmt: skip
    z = problem.margins(there(X), np.ones(3))
    np.testing.assert_allclose(np.from_dlpack(z), X @ np.ones(3), rtol=1e-12)


def test_a_fingerprint_tells_data_apart_and_moves_none_of_it():
    torch = pytest.importorskip("torch")
    own = tercet.LinearModel(torch.asarray(X), Y).fingerprint()
    assert own == tercet.LinearModel(torch.asarray(X.copy()), torch.asarray(Y)).fingerprint()
    other = X.copy()
    other[[3, 4]] = other[[4, 3]]
    assert own["X"] != tercet.LinearModel(torch.asarray(other), Y).fingerprint()["X"]
    assert own["y"] != tercet.LinearModel(torch.asarray(X), 1.0 - Y).fingerprint()["y"]
    weighted = tercet.LinearModel(torch.asarray(X), Y, weights=np.linspace(1, 2, 60)).fingerprint()
    assert weighted["weights"] != own["weights"]


def cases():
    torch = pytest.importorskip("torch")
    T = torch.asarray
    return {
        "whole numbers": (lambda: tercet.LinearModel(T(X).to(torch.int64), Y), "int64.*float32 or float64"),
        "half precision": (lambda: tercet.LinearModel(T(X).to(torch.float16), Y), "float16.*float32 or float64"),
        "mixed precision": (lambda: tercet.LinearModel(T(X), T(Y).to(torch.float32)), "y is float32 and X float64"),
        "nan": (lambda: tercet.LinearModel(T(np.where(X > 1, np.nan, X)), Y), "X holds nan or inf"),
        "inf in y": (lambda: tercet.LinearModel(T(X), np.append(Y[1:], np.inf), "squares"), "y holds nan or inf"),
        "too large": (lambda: tercet.LinearModel(T(1e100 * X), Y), "beyond float64"),
        "too large for float32": (
            lambda: tercet.LinearModel(T(1e13 * X).to(torch.float32), Y, accumulate="float32"),
            "beyond float32",
        ),
        "labels": (lambda: tercet.LinearModel(T(X), T(2 * Y)), "other numbers than 0 and 1"),
        "short y": (lambda: tercet.LinearModel(T(X), T(Y[:5])), "y has shape.*60 rows"),
        "short weights": (lambda: tercet.LinearModel(T(X), Y, weights=T(Y[:5])), "weights has shape"),
        "negative weights": (lambda: tercet.LinearModel(T(X), Y, weights=T(Y - 0.5)), "at least 0"),
        "a vector": (lambda: tercet.LinearModel(T(Y), Y), "non-empty table"),
        "float32 sums of float64": (lambda: tercet.LinearModel(T(X), Y, accumulate="float32"), "X is float64"),
        "another precision": (lambda: tercet.LinearModel(T(X), Y, accumulate="half"), "'float64' or 'float32'"),
        "on the host": (lambda: tercet.LinearModel(X, Y, accumulate="float64"), "goes with X on a device"),
        "returns": (lambda: tercet.LinearModel(T(X), Y, returns="torch"), "'numpy' or 'device'"),
        "returns on the host": (lambda: tercet.LinearModel(X, Y, returns="device"), "goes with X on a device"),
        "another device": (lambda: tercet.LinearModel(T(X), T(Y).to("meta")), "y is on meta and X on cpu"),
    }


@pytest.mark.parametrize("name", cases())
def test_bad_input_is_refused_with_the_remedy(name):
    make, words = cases()[name]
    with pytest.raises(ValueError, match=words):
        make()


def test_arrays_of_two_libraries_are_refused():
    torch, strict = pytest.importorskip("torch"), pytest.importorskip("array_api_strict")
    with pytest.raises(ValueError, match="PyTorch"):
        tercet.LinearModel(strict.asarray(X), torch.asarray(Y))


def test_a_problem_that_does_not_fit_says_so_with_the_size_that_would(monkeypatch):
    torch = pytest.importorskip("torch")
    from tercet.objectives.device.arrays import TorchArrays

    monkeypatch.setattr(TorchArrays, "free", lambda self: 200_000_000)
    n = 5_000_000
    A = torch.zeros((1, 3), dtype=torch.float64).expand(n, 3)
    with pytest.raises(ValueError, match=r"needs 0\.5\d GB.*0\.20 GB are free.*at most (\d+) rows") as raised:
        tercet.LinearModel(A, np.zeros(1))
    fits = int(str(raised.value).split("at most ")[1].split()[0])
    model.check_room(model.arrays_of(A, None), A[:fits])
    assert fits > 0.1 * n
