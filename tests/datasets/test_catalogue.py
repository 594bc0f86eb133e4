"""Data sets by name: what the catalogue says is what is loaded, from the right place, or a clear refusal."""

import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import tercet
from tercet.datasets import about, catalogue, load, load_file, names

GENERATED = ["degenerate", "ill-conditioned", "sparse", "huge"]
EMBEDDED = ["breast-cancer", "digits"]
FROM_FILES = ["a9a", "covtype", "covtype-raw", "svmguide3"]


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A small data set of the catalogue in a folder, and no other folder to find it in."""
    X, y = np.array([[0.5, 0.0], [0.0, 2.0], [1.0, 1.0]]), np.array([-1.0, 1.0, -1.0])
    folder = tmp_path / "data"
    folder.mkdir()
    dump_svmlight_file(X, y, str(folder / "tiny.txt"), zero_based=False)
    digest = catalogue.digest_of(sp.csr_array(X), y)
    entry = catalogue.About("tiny", 3, 2, "0: -1, 1: +1", "made here", "none", digest)
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", entry)
    monkeypatch.setitem(catalogue.FILES, "tiny", ("tiny.txt", 2))
    monkeypatch.delenv("TERCET_DATA", raising=False)
    monkeypatch.setattr(catalogue, "cache", lambda: None)
    return folder


class FakePooch(types.ModuleType):
    """Copies instead of downloading, or fails as a machine without network does."""

    def __init__(self, source, cache, offline=False):
        super().__init__("pooch")
        self.source, self.folder, self.offline, self.asked = source, cache, offline, []

    def os_cache(self, name):
        return self.folder / name

    def retrieve(self, url, known_hash, fname, path, progressbar):
        self.asked.append(url)
        if self.offline:
            raise ConnectionError("no route to host")
        path.mkdir(parents=True, exist_ok=True)
        (path / fname).write_bytes((self.source / fname).read_bytes())
        return str(path / fname)


def test_the_catalogue_has_the_papers_three_and_says_what_each_entry_is():
    assert set(names()) == {*FROM_FILES, *EMBEDDED, *GENERATED}
    for name in names():
        entry = about(name)
        assert entry.n > 1
        assert entry.d > 1
        assert entry.labels
        assert entry.source
        assert entry.license
        assert (entry.digest == "") == (name in GENERATED)


@pytest.mark.parametrize("name", [*EMBEDDED, *GENERATED[:3]])
def test_a_loaded_set_is_what_the_catalogue_says_and_always_the_same(name):
    data, again = load(name), load(name)
    assert data.X.shape == (data.info.n, data.info.d) == (about(name).n, about(name).d)
    assert data.info.digest == again.info.digest
    assert data.info.digest == (about(name).digest or data.info.digest)
    assert np.all(np.isfinite(data.y))
    if name != "degenerate":
        assert set(np.unique(data.y)) == {0.0, 1.0}


@pytest.mark.parametrize("name", FROM_FILES)
def test_files_that_are_there_decode_to_the_published_matrix(name):
    if catalogue.find(name, None) is None:
        pytest.skip(f"the file of {name} is not on this machine")
    data = load(name)
    assert data.X.shape == (about(name).n, about(name).d)
    assert data.info.digest == about(name).digest
    assert set(np.unique(data.y)) == {0.0, 1.0}
    used = np.bincount(data.X.indices, minlength=data.info.d) if sp.issparse(data.X) else data.X.any(axis=0)
    assert np.all(used)  # no column is dead


def test_the_degenerate_sum_has_nothing_but_a_third_derivative_at_zero():
    data = load("degenerate")
    point = tercet.LinearModel(data.X, data.y, data.info.loss).over(None).at(np.zeros(data.info.d))
    assert np.all(point.gradient() == 0.0)
    assert np.all(point.hessian() == 0.0)
    y = np.ones(data.info.d)
    assert float(y @ point.product(3, y, y)) > 0.1


def test_the_loss_of_the_degenerate_sum_has_the_derivatives_that_it_says():
    z, y, h = np.linspace(-1, 1, 9), np.full(9, 0.3), 1e-5
    loss = load("degenerate:64").info.loss
    parts = loss.derivatives(z, y)
    for order in range(3):
        slope = (loss.derivatives(z + h, y)[order] - loss.derivatives(z - h, y)[order]) / (2 * h)
        np.testing.assert_allclose(slope, parts[order + 1], atol=1e-8)


def test_a_sample_of_rows_is_always_the_same_and_part_of_the_whole():
    whole, one, two = load("digits"), load("digits:100"), load("digits:100")
    assert one.X.shape == (100, whole.info.d)
    assert np.array_equal(one.X, two.X)
    assert one.info.digest == two.info.digest != whole.info.digest
    rows = {row.tobytes() for row in whole.X}
    assert all(row.tobytes() in rows for row in one.X)
    assert about("digits:100").n == 100


@pytest.mark.parametrize(("name", "near"), [("a9", "a9a"), ("covtyp", "covtype"), ("SVMguide", "svmguide3")])
def test_an_unknown_name_lists_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"unknown data set '{name}'.*nearest are.*{near}"):
        load(name)


@pytest.mark.parametrize("name", ["digits:", "digits:0", "digits:x", "digits:99999", "digits:-3"])
def test_a_sample_that_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match="number of rows, 2 to 1797"):
        load(name)


def test_data_dir_goes_before_the_variable_and_both_are_found(tiny, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    (other / "tiny.txt").write_text("1 1:1\n")
    monkeypatch.setenv("TERCET_DATA", str(tiny))
    assert load("tiny").X.shape == (3, 2)
    assert load("tiny", tiny).y.tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match="not the published matrix"):
        load("tiny", other)  # not silently the good one of TERCET_DATA
    assert load("tiny", tmp_path).info.n == 3  # a folder without the file: the next place


def test_a_packed_file_and_a_plain_one_have_the_same_digest(tiny, monkeypatch):
    import bz2

    monkeypatch.setitem(catalogue.FILES, "tiny", ("tiny.txt.bz2", 2))
    (tiny / "tiny.txt.bz2").write_bytes(bz2.compress((tiny / "tiny.txt").read_bytes()))
    packed = load("tiny", tiny)
    (tiny / "tiny.txt.bz2").unlink()
    assert load("tiny", tiny).info.digest == packed.info.digest


def test_a_file_with_other_numbers_is_refused_with_its_path(tiny):
    (tiny / "tiny.txt").write_text("-1 1:0.5\n1 2:2\n-1 1:1 2:1.0000001\n")
    with pytest.raises(ValueError, match=r"tiny.txt is not the published matrix.*Remove the file"):
        load("tiny", tiny)


def test_a_missing_file_names_the_three_remedies(tiny, tmp_path):
    (tiny / "tiny.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"--data-dir.*TERCET_DATA.*--download"):
        load("tiny", tmp_path)
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        load("tiny", tmp_path / "nowhere")


def test_a_download_is_made_once_and_only_when_allowed(tiny, tmp_path, monkeypatch):
    pooch = FakePooch(tiny, tmp_path / "cache")
    monkeypatch.setitem(sys.modules, "pooch", pooch)
    monkeypatch.setattr(catalogue, "cache", lambda: pooch.os_cache("tercet"))
    with pytest.raises(FileNotFoundError):
        load("tiny")
    assert pooch.asked == []
    assert load("tiny", download=True).info.n == 3
    assert load("tiny").info.n == 3  # now from the cache
    assert load("tiny", download=True).info.n == 3
    assert pooch.asked == ["https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/tiny.txt"]


def test_offline_is_said_with_the_address_and_the_remedy(tiny, tmp_path, monkeypatch):
    pooch = FakePooch(tiny, tmp_path / "cache", offline=True)
    monkeypatch.setitem(sys.modules, "pooch", pooch)
    with pytest.raises(OSError, match=r"could not be downloaded \(ConnectionError.*--data-dir or TERCET_DATA"):
        load("tiny", download=True)


def test_a_download_without_pooch_says_what_to_install(tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"pip install 'tercet\[download\]'"):
        load("tiny", download=True)


def test_without_pooch_there_is_no_cache(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert catalogue.cache() is None


def test_an_embedded_set_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"tercet\[sklearn\]"):
        load("digits")


def test_a_file_of_the_users_own_is_a_data_set(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("3 1:1 2:0.5\n7 2:1\n")
    data = load_file("mine", path)
    assert data.name == "mine"
    assert data.y.tolist() == [0.0, 1.0]
    assert data.info.labels == "0: 3 in the file, 1: 7"
    path.write_text("3 1:1\n7 1:1\n8 1:1\n")
    with pytest.raises(ValueError, match="3 label value"):
        load_file("mine", path)
