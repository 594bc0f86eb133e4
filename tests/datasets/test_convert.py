"""A file cut into shards has the same rows, whatever their size; what is not of the format is named."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from tercet import Shards, cli, load_libsvm
from tercet.datasets import shard_file, unpack

RNG = np.random.default_rng(0)
N, D = 500, 7
X = np.round(RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.6), 3)
Y = np.where(X @ np.ones(D) + RNG.standard_normal(N) > 0, 3.0, -2.0)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "train.svm"
    dump_svmlight_file(X, Y, str(path), zero_based=False)
    return path


def rows_of(folder):
    shards = Shards(folder)
    shards.verify()
    parts = [shards.read(i) for i in range(len(shards))]
    tables = [part[0].toarray() if sp.issparse(part[0]) else part[0] for part in parts]
    return shards, np.concatenate(tables), np.concatenate([part[1] for part in parts])


@pytest.mark.parametrize("packed", [None, gzip, bz2, lzma])
@pytest.mark.parametrize(("block", "shard"), [(1 << 22, 1 << 26), (997, 2048), (50, 5000)])
def test_libsvm_text_gives_the_rows_that_load_libsvm_reads(text, tmp_path, monkeypatch, packed, block, shard):
    monkeypatch.setattr(unpack, "BLOCK", block)
    path = text
    if packed is not None:
        path = tmp_path / "train.svm.packed"
        path.write_bytes(packed.compress(text.read_bytes()))
    manifest = shard_file(path, tmp_path / "out", shard_bytes=shard)
    expected, y = load_libsvm(text)
    shards, table, targets = rows_of(tmp_path / "out")
    np.testing.assert_array_equal(table, expected.toarray())
    np.testing.assert_array_equal(targets, (y == 3.0).astype(float))
    assert (len(shards) > 1) == (shard < 1 << 20)
    assert manifest.labels == shards.labels == {"-2.0": 0, "3.0": 1}
    assert shards.layout.sparse


def test_comments_blank_lines_qids_and_a_last_line_without_an_end(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("# head\n1 qid:3 1:2 3:4 # note\n\n2.5\n1 2:1e-300\n-7 3:1")
    shard_file(path, tmp_path / "out", n_features=4)
    shards, table, targets = rows_of(tmp_path / "out")
    np.testing.assert_array_equal(table, [[2, 0, 4, 0], [0, 0, 0, 0], [0, 1e-300, 0, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(targets, [1, 2.5, 1, -7])
    assert shards.labels is None


def test_labels_may_stay_as_they_are(text, tmp_path):
    assert shard_file(text, tmp_path / "out", keep_labels=True).labels is None
    np.testing.assert_array_equal(rows_of(tmp_path / "out")[2], Y)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_with_names(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    names = [f"c{j}" for j in range(D)]
    table = pa.table({**{name: X[:, j] for j, name in enumerate(names[:3])}, "label": Y,
                      **{name: X[:, j + 3] for j, name in enumerate(names[3:])}})  # fmt: skip
    path = tmp_path / f"a.{kind}"
    (csv.write_csv if kind == "csv" else parquet.write_table)(table, path)
    shard_file(path, tmp_path / "out", target="label", shard_bytes=4096)
    shards, got, targets = rows_of(tmp_path / "out")
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(targets, (Y == 3.0).astype(float))
    assert not shards.layout.sparse


def test_a_column_of_weights_goes_with_the_targets(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    weights = np.random.default_rng(3).uniform(0.1, 2.0, len(X))
    parquet.write_table(pa.table({"w": weights, **{f"c{j}": X[:, j] for j in range(D)}, "label": Y}), tmp_path / "a.pq")
    shard_file(tmp_path / "a.pq", tmp_path / "out", target="label", weights="w", shard_bytes=4096)
    shards = Shards(tmp_path / "out")
    parts = [shards.read(i) for i in range(len(shards))]
    np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), X)
    np.testing.assert_array_equal(np.concatenate([part[2] for part in parts]), weights)
    shards.verify()
    with pytest.raises(ValueError, match="no column 'wt'; it has w, c0"):
        shard_file(tmp_path / "a.pq", tmp_path / "other", target="label", weights="wt")


def write(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.svm", "1 1:2\n1 1:x\n", {}, r"a.svm:2: found 'x'"),
        ("a.svm", "1 2:2\n1 3:1\n", {"n_features": 2}, "a.svm:2: .*at most n_features=2"),
        ("a.svm", "# nothing\n", {}, "found no row"),
        ("a.svm", "1 1:2\n", {"target": "y"}, "leave target out"),
        ("a.csv", "a,b\n1,2\n", {}, "name the column"),
        ("a.csv", "a,b\n1,2\n", {"target": "y"}, "no column 'y'; it has a, b"),
        ("a.csv", "a,b\n1,2\n,3\n", {"target": "b"}, "column 'a', row 1 is empty"),
        ("a.csv", "a,b\nu,2\nv,3\n", {"target": "b"}, "column 'a' holds string"),
        ("a.csv", "a,b\n1,2\ninf,3\n", {"target": "b"}, "column 'a', row 1 is not finite"),
        ("a.csv", "a,b\n1,2\n1\n", {"target": "b"}, "not a table"),
        ("a.csv", "a\n1\n", {"target": "a"}, "1 rows of 0 features"),
        ("a.svm", "1 1:2\n", {"shard_bytes": 3}, "shard_bytes=3"),
    ],
)
def test_what_is_not_of_the_format_is_refused_with_its_place(tmp_path, name, content, options, message):
    if name.endswith("csv"):
        pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match=message):
        shard_file(write(tmp_path, name, content), tmp_path / "out", **options)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_folder_that_holds_something_is_left_alone(text, tmp_path):
    with pytest.raises(ValueError, match="something lies there"):
        shard_file(text, tmp_path)
    with pytest.raises(FileNotFoundError):
        shard_file(tmp_path / "none", tmp_path / "out")


def test_progress_is_told_and_ends_at_all_rows(text, tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "BLOCK", 1000)
    seen = []
    shard_file(text, tmp_path / "out", progress=lambda share, rows: seen.append((share, rows)))
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1][0] == 1.0
    assert N - 1 <= seen[-1][1] <= N


def call(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_shards_and_fits_out_of_core_like_in_memory(text, tmp_path, capsys):
    code, out, _ = call(capsys, "shard", text, tmp_path / "out", "--shard-mb", "0.004", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["rows"], told["columns"], told["labels"]) == (N, D, {"-2.0": 0, "3.0": 1})
    fitted = {}
    for data in (text, tmp_path / "out"):
        model = tmp_path / "model.npz"
        code, out, _ = call(capsys, "fit", data, "--loss", "logistic", "--l2", "1e-3", "--out", model, "--json")
        assert code == 0
        fitted[data] = json.loads(out)
        code, out, _ = call(capsys, "predict", model, text)
        assert code == 0
        assert set(out.split()) == {"3", "-2"}
    np.testing.assert_allclose(fitted[text]["x"], fitted[tmp_path / "out"]["x"], rtol=1e-6)
    assert fitted[tmp_path / "out"]["rounds"] > 0
    assert fitted[tmp_path / "out"]["labels"] == {"-2.0": 0, "3.0": 1}
    assert "rounds" not in fitted[text]
    code, out, _ = call(capsys, "shard", text, tmp_path / "other")
    assert "1 shard of 500 x 7" in out
    code, _, err = call(capsys, "shard", text, tmp_path)
    assert (code, "something lies there" in err) == (2, True)
    code, _, err = call(capsys, "fit", text, "--dask", "tcp://nowhere:1")
    assert (code, "is no folder" in err) == (2, True)
