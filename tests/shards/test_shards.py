"""Every kind of shards gives the same rows; what does not fit is refused with the number of the shard."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import tercet
from tercet import Shards
from tercet.shards import layout, sources

RNG = np.random.default_rng(0)
X, Y, W = RNG.standard_normal((300, 4)), RNG.standard_normal(300), RNG.uniform(0.5, 2.0, 300)
CUTS = (0, 100, 101, 300)


def cut(values):
    return [values[a:b] for a, b in itertools.pairwise(CUTS)]


def write(folder, tables, y=Y, w=None):
    for k, (table, targets) in enumerate(zip(tables, cut(y), strict=True)):
        if sp.issparse(table):
            sp.save_npz(folder / f"X-{k}.npz", table)
        else:
            np.save(folder / f"X-{k}.npy", table)
        np.save(folder / f"y-{k}.npy", targets)
        if w is not None:
            np.save(folder / f"w-{k}.npy", cut(w)[k])
    return folder


def rows_of(shards):
    parts = [shards.read(i) for i in range(len(shards))]
    tables = [part[0].toarray() if sp.issparse(part[0]) else part[0] for part in parts]
    w = None if parts[0][2] is None else np.concatenate([part[2] for part in parts])
    return np.concatenate(tables), np.concatenate([part[1] for part in parts]), w


def parquet(folder):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    for k, (table, y, w) in enumerate(zip(cut(X), cut(Y), cut(W), strict=True)):
        columns = {f"c{j}": table[:, j] for j in range(4)} | {"y": y, "w": w}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"part-{k}.parquet")
    return Shards(str(folder / "part-*.parquet"), "y", weights="w")


def zarr_of(folder):
    zarr = pytest.importorskip("zarr")
    arrays = [zarr.open(str(folder / name), mode="w", shape=v.shape, chunks=(50, *v.shape[1:]), dtype="f8")
              for name, v in (("X", X), ("y", Y), ("w", W))]  # fmt: skip
    for array, values in zip(arrays, (X, Y, W), strict=True):
        array[:] = values
    return Shards(arrays[0], arrays[1], weights=arrays[2])


KINDS = {
    "npy": lambda f: Shards(str(write(f, cut(X), w=W) / "X-*.npy"), str(f / "y-*.npy"), weights=str(f / "w-*.npy")),
    "npy in columns": lambda f: Shards(
        str(write(f, [np.asfortranarray(t) for t in cut(X)], w=W) / "X-*.npy"),
        str(f / "y-*.npy"),
        weights=str(f / "w-*.npy"),
    ),
    "npz": lambda f: Shards(
        str(write(f, [sp.csr_array(t) for t in cut(X)], w=W) / "X-*.npz"),
        str(f / "y-*.npy"),
        weights=str(f / "w-*.npy"),
    ),
    "parquet": parquet,
    "zarr": zarr_of,
    "arrays": lambda f: Shards(cut(X), cut(Y), weights=cut(W)),
    "sparse arrays": lambda f: Shards([sp.csr_array(t) for t in cut(X)], cut(Y), weights=cut(W)),
    "one array": lambda f: Shards(X, Y, weights=W),
    "function": lambda f: Shards(lambda i: (cut(X)[i], cut(Y)[i], cut(W)[i]), shapes=3),
    "function with shapes": lambda f: Shards(
        lambda i: (cut(X)[i], cut(Y)[i], cut(W)[i]), shapes=[(100, 4), (1, 4), (199, 4)]
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_rows_and_knows_its_shape(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "WINDOW", 64 * 8 * 4)  # several windows a shard
    shards = KINDS[kind](tmp_path)
    assert (shards.n, shards.layout.columns, shards.layout.weighted) == (300, 4, True)
    for got, expected in zip(rows_of(shards), (X, Y, W), strict=True):
        np.testing.assert_array_equal(got, expected)
    if not shards.layout.sparse:
        assert max(block.rows for i in range(len(shards)) for block in shards.blocks(i)) <= 64
    assert "300 x 4" in repr(shards)


def test_parquet_is_read_as_it_comes_in_groups_of_any_size(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    monkeypatch.setattr(layout, "WINDOW", 64 * 8 * 4)
    monkeypatch.setattr(sources, "PACKED", 50 * 8 * 6)
    table = pa.table({f"c{j}": X[:, j] for j in range(4)} | {"y": Y, "text": ["a"] * len(Y), "w": W})
    pyarrow.parquet.write_table(table, tmp_path / "p-0.parquet", row_group_size=70)
    shards = Shards(str(tmp_path / "p-*.parquet"), "y", weights="w", features=["c0", "c1", "c2", "c3"])
    for got, expected in zip(rows_of(shards), (X, Y, W), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert max(block.rows for block in shards.blocks(0)) == 64
    pyarrow.parquet.write_table(table.slice(0, 130), tmp_path / "p-0.parquet", row_group_size=70)
    with pytest.raises(OSError, match=r"shard 0 .*p-0.parquet\) cannot be read: .* ends 62 rows early"):
        list(shards.blocks(0))
    (tmp_path / "p-0.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"p-0.parquet'\): it is no Parquet file"):
        Shards(str(tmp_path / "p-*.parquet"), "y")


def test_single_precision_and_whole_numbers_are_taken_as_they_are_stored(tmp_path):
    for dtype in (np.float32, np.int8):
        tables = [np.round(3 * t).astype(dtype) for t in cut(X)]
        shards = Shards(str(write(tmp_path, tables) / "X-*.npy"), str(tmp_path / "y-*.npy"))
        np.testing.assert_array_equal(rows_of(shards)[0], np.concatenate(tables).astype(float))


def test_a_manifest_knows_the_shards_again(tmp_path):
    made = Shards(str(write(tmp_path, cut(X)) / "X-*.npy"), str(tmp_path / "y-*.npy"))
    made.write_manifest()
    again = Shards(tmp_path)
    np.testing.assert_array_equal(rows_of(again)[0], X)
    again.verify()
    changed = np.load(tmp_path / "X-2.npy")
    changed[5, 1] += 1e-9
    np.save(tmp_path / "X-2.npy", changed)
    with pytest.raises(ValueError, match=r"shard 2 \(X-2.npy\) are not those of the manifest"):
        Shards(tmp_path).verify()
    np.save(tmp_path / "X-2.npy", changed.astype(np.float32))
    with pytest.raises(ValueError, match=r"shard 2 \(X-2.npy\) has dtype '<f4', but manifest.json says '<f8'"):
        Shards(tmp_path)
    (tmp_path / "X-2.npy").unlink()
    with pytest.raises(ValueError, match=r"X-2.npy' of its manifest.json is not there"):
        Shards(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match="not a manifest"):
        Shards(tmp_path)


def test_digests_do_not_depend_on_how_the_numbers_are_stored(tmp_path):
    arrays = Shards(cut(X), cut(Y))
    files = Shards(str(write(tmp_path, [np.asfortranarray(t) for t in cut(X)]) / "X-*.npy"), str(tmp_path / "y-*.npy"))
    assert [arrays.digest(i) for i in range(3)] == [files.digest(i) for i in range(3)]
    other = Shards(cut(X), cut(Y + 1e-12))
    assert arrays.digest(0) != other.digest(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shards(cut(X), cut(Y)[:2]), "y=.*give a list of 3 arrays"),
        (lambda: Shards([X[:10], X[:5, :3]], [Y[:10], Y[:5]]), r"shard 1 \(array 1\) has columns 3, but shard 0 has 4"),
        (lambda: Shards([X[:10], X[:5].astype("f4")], [Y[:10], Y[:5]]), "shard 1 .* has dtype '<f4'"),
        (lambda: Shards([X[:10], X[:0]], [Y[:10], Y[:0]]), "shard 1 .* is empty, 0 x 4"),
        (lambda: Shards([X[:10], X[:5]], [Y[:10], Y[:4]]), "shard 1 .*: y has shape .4,., but X has 5 rows"),
        (lambda: Shards([X[:10], sp.csr_array(X[:5])], [Y[:10], Y[:5]]), "shard 1 .* has sparse True"),
        (lambda: Shards([X[:10].astype(str)], [Y[:10]]), "shard 0 .* holds <U32; give real numbers"),
        (lambda: Shards([]), "y=None"),
        (lambda: Shards([], []), "there is no shard"),
        (lambda: Shards(X), "y=None.*give the targets"),
        (lambda: Shards(X, Y[:7]), r"shape \(300,\)"),
        (lambda: Shards(lambda i: X, shapes=2), r"shard 0: read\(0\) gave ndarray"),
        (lambda: Shards(lambda i: (X, Y)), "give the shape"),
        (lambda: Shards(lambda i: (X, Y), Y, shapes=1), "leave them out"),
        (lambda: Shards(7, Y), "X=int"),
        (lambda: Shards("nothing-*.npy", "y-*.npy"), "no file matches"),
        (lambda: Shards(cut(X), cut(Y), shapes=3), "shapes go with a function"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_number(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_files_of_a_wrong_kind_are_refused(tmp_path):
    write(tmp_path, cut(X))
    with pytest.raises(ValueError, match=r"no manifest.json"):
        Shards(tmp_path)
    np.savez(tmp_path / "Z-0.npz", a=X)
    np.save(tmp_path / "t-0.npy", Y)
    with pytest.raises(ValueError, match="no CSR matrix"):
        Shards(str(tmp_path / "Z-*.npz"), str(tmp_path / "t-*.npy"))
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match=r"files of kind .txt"):
        Shards(str(tmp_path / "a.txt"), str(tmp_path / "y-0.npy"))


def test_a_shard_that_cannot_be_read_is_named(tmp_path):
    shards = Shards(str(write(tmp_path, cut(X)) / "X-*.npy"), str(tmp_path / "y-*.npy"))
    with open(tmp_path / "X-2.npy", "r+b") as file:
        file.truncate(3000)
    with pytest.raises(OSError, match=r"shard 2 \(.*X-2.npy\) cannot be read"):
        list(shards.blocks(2))
    (tmp_path / "X-0.npy").unlink()
    with pytest.raises(OSError, match=r"shard 0 \(.*X-0.npy\) cannot be read"):
        list(shards.blocks(0))

    def read(i):
        if i == 1 and len(calls) > 2:
            raise RuntimeError("no tape")
        calls.append(i)
        return cut(X)[i], cut(Y)[i]

    calls = []
    shards = Shards(read, shapes=3)
    with pytest.raises(OSError, match=r"shard 1 \(read\(1\)\) cannot be read: it raised RuntimeError: no tape"):
        list(shards.blocks(1))


def test_a_function_whose_shards_change_is_found_out():
    calls = []

    def read(i):
        calls.append(i)
        return X[: 10 if len(calls) <= 2 else 9], Y[: 10 if len(calls) <= 2 else 9]

    shards = Shards(read, shapes=2)
    with pytest.raises(ValueError, match=r"shard 1 gave \(9, 4\) with 9 targets.*it changed since it was opened"):
        list(shards.blocks(1))


def test_it_is_public():
    assert tercet.Shards is Shards
