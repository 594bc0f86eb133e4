"""Data that goes to a device, from the command line too."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from tercet.cli import main
from tercet.objectives.device.place import to_device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*Sparse CSR.*")


def test_sparse_rows_stay_sparse_and_full_ones_become_dense():
    A = sp.random_array((50, 20), density=0.1, rng=np.random.default_rng(0), format="csr")
    X, y = to_device("call", A, np.ones(50), "cpu")
    assert X.layout == torch.sparse_csr
    np.testing.assert_array_equal(X.to_dense().numpy(), A.toarray())
    assert y.dtype == torch.float64
    full = sp.csr_array(np.arange(1.0, 13.0).reshape(4, 3))
    X, _ = to_device("call", full, np.ones(4), "cpu")
    np.testing.assert_array_equal(X.numpy(), full.toarray())


def test_a_device_that_is_not_there_is_refused_with_the_remedy(monkeypatch):
    with pytest.raises(ValueError, match="'gpu' is no device"):
        to_device("call", np.ones((2, 2)), np.ones(2), "gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"call: this PyTorch .*CUDA.*leave the device out"):
        to_device("call", np.ones((2, 2)), np.ones(2), "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="2 CUDA devices"):
        to_device("call", np.ones((2, 2)), np.ones(2), "cuda:2")


def test_fit_takes_a_device_and_finds_what_it_finds_without(tmp_path, capsys):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((200, 4)) * (rng.random((200, 4)) < 0.5)
    y = np.where(A @ [1, -1, 0.5, 0] + 0.5 * rng.standard_normal(200) > 0, 1, -1)
    lines = (
        f"{label} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row) if v) for label, row in zip(y, A, strict=True)
    )
    path = tmp_path / "data.svm"
    path.write_text("\n".join(lines) + "\n")
    found = []
    for device in ([], ["--device", "cpu"]):
        assert main(["fit", str(path), "--l2", "1e-2", "--json", *device]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[1]["fun"] == pytest.approx(found[0]["fun"], rel=1e-10)
    assert "on cpu" in json.dumps(found[1])
