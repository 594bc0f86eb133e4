"""Data on disk: passes to a gap of 1e-8 beside L-BFGS over the same sums, the price of a pass, memory, killed workers.

    python -m benchmarks.scale [--gb 0.8] [--columns 100] [--sample 0.05] [--kills 10] [--folder DIR] [--only PART,...]

Parts: rounds, pass, memory, dask, kills, giant, peers (`benchmarks.scale_peers`). Data are generated into shards below
the folder, and removed.
`--sample` is the share of the rows that live with the driver; at 40 GB and the default of 128 MB it is 0.003.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.optimize

import tercet
from benchmarks.giant_dane import Machines, dane, giant
from benchmarks.scale_peers import dask_ml, sgd
from benchmarks.scale_watch import ROUNDS, lbfgs, reached, recorded
from tercet.objectives.sharded.engine import Local
from tercet.shards.abreast import abreast

GAP = 1e-8
SHARDS = 16
PEER_ROUNDS = 30  # of GIANT and DANE at the most
L2 = (1e-3, 1e-6, 1e-9)
PEERS: tuple[tuple[str, Callable[..., float], tuple[float, ...]], ...] = (  # with mu as a multiple of l2
    ("GIANT", giant, ()),
    ("DANE, mu 0", dane, (0.0,)),
    ("DANE, mu 3 l2", dane, (3.0,)),
)
PARTS = ("rounds", "pass", "memory", "dask", "kills", "giant", "peers")


def generate(folder: Path, rows: int, columns: int, kind: str) -> tercet.Shards:
    """Shards of a logistic model. Columns are independent; or half of each is one common factor; or they are in units
    from 0.1 to 10, too; or, with a factor, the rows are in its order, so that no shard is like another."""
    rng = np.random.default_rng(0)
    w, units = rng.standard_normal(columns) / np.sqrt(columns), np.ones(columns)
    if kind == "units":
        units = 10.0 ** rng.uniform(-1, 1, columns)
    folder.mkdir()
    each = rows // SHARDS
    factors = np.sort(rng.standard_normal(each * SHARDS)) if kind == "ordered" else None
    for k in range(SHARDS):
        X = rng.standard_normal((each, columns))
        if kind != "independent":
            X += rng.standard_normal((each, 1)) if factors is None else factors[k * each : (k + 1) * each, None]
        y = (X @ w + rng.logistic(size=each) > 0).astype(float)
        np.save(folder / f"X-{k:03d}.npy", X * units)
        np.save(folder / f"y-{k:03d}.npy", y)
    return tercet.Shards(str(folder / "X-*.npy"), str(folder / "y-*.npy"))


def rounds(shards: dict[str, tercet.Shards], share: float, penalties: Sequence[float]) -> dict[str, Any]:
    """Passes and seconds to the gap, and those of L-BFGS over the same sums."""
    out = {}
    for name, data in shards.items():
        for l2 in penalties:
            bytes_ = int(share * 8 * data.n * (data.layout.columns + 2))
            model = tercet.LinearModel(data, loss="logistic", l2=l2, sample_bytes=bytes_)
            with recorded() as seen:
                start = time.perf_counter()
                result = tercet.minimize(model, order=2)
            target = result.fun + GAP
            ours, peer = reached(seen, target, start), lbfgs(model, target)
            out[f"{name}, l2 {l2:g}"] = {
                "passes": ours[0], "seconds": ours[1], "passes to the certificate": result.rounds,
                "certified": result.success, "L-BFGS passes": peer[0], "L-BFGS seconds": peer[1],
                "ratio of seconds": peer[1] / ours[1],
            }  # fmt: skip
            sign, times = "" if np.isfinite(peer[0]) else "> ", peer[1] / ours[1]
            print(
                f"  {name}, l2 {l2:g}: ours {ours[0]:g} passes, {ours[1]:.1f} s (with the certificate {result.rounds})"
            )
            print(f"    L-BFGS {sign}{min(peer[0], ROUNDS):g} passes, {peer[1]:.1f} s; ratio {sign}{times:.1f}")
    return out


def against_giant(shards: dict[str, tercet.Shards], share: float) -> dict[str, Any]:
    """Rounds to the gap of GIANT and DANE, written from their papers, with each shard as a machine, beside ours."""
    out: dict[str, dict[str, float]] = {}
    for name, data in shards.items():
        for l2 in L2:
            bytes_ = int(share * 8 * data.n * (data.layout.columns + 2))
            with recorded() as seen:
                start = time.perf_counter()
                result = tercet.minimize(tercet.LinearModel(data, loss="logistic", l2=l2, sample_bytes=bytes_), order=2)
            target = result.fun + GAP
            ours = reached(seen, target, start)[0]
            told, out[f"{name}, l2 {l2:g}"] = [f"ours {ours:g}"], {"ours": ours}
            for peer, solve, settings in PEERS:
                machines = Machines(data, "logistic", l2)
                count = solve(machines, target, PEER_ROUNDS, *(times * l2 for times in settings))
                out[f"{name}, l2 {l2:g}"][peer] = count
                told.append(f"{peer} {count:g} (rows read {machines.reads:.0f} times)")
            print(f"  {name}, l2 {l2:g}: rounds {', '.join(told)}")
    return out


def read_alone(data: tercet.Shards, threads: int = 1) -> None:
    """All bytes, and nothing else."""

    def one(i: int, over: Any) -> None:
        room = memoryview(bytearray(1 << 21))
        for path in data.source.paths(i):  # type: ignore[attr-defined] # of files, which these are
            with open(path, "rb", buffering=0) as file:
                while file.readinto(room):
                    pass

    for _ in abreast(one, range(len(data)), threads):
        pass


def forget(data: tercet.Shards) -> None:
    """Have the system drop the files from its page cache."""
    for i in range(len(data)):
        for path in data.source.paths(i):  # type: ignore[attr-defined] # of files, which these are
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def in_turns(
    works: dict[str, Callable[[], Any]], before: Callable[[], Any], times: int
) -> dict[str, tuple[float, float]]:
    """The shortest of some runs of each, in seconds and in seconds of processors; they take turns, so that they share
    what else the machine does."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(times):
        for name, work in works.items():
            before()
            begun = time.perf_counter(), time.process_time()
            work()
            spent[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return {name: (min(t for t, _ in each), min(t for _, t in each)) for name, each in spent.items()}


def one_pass(data: tercet.Shards, times: int) -> dict[str, Any]:
    """A pass for f and its gradient, over reading the bytes alone, from the page cache and from the disk."""
    model = tercet.LinearModel(data, loss="logistic", l2=1e-6)
    point = model.over(None).at(np.full(model.d, 0.01))
    point.first()
    threads = model.driver.engine.threads
    works = {
        "reading": lambda: read_alone(data),
        "reading, all": lambda: read_alone(data, threads),
        "pass": point.first,
    }
    out: dict[str, Any] = {}
    for name, before, count in (
        ("page cache", lambda: None, times),
        ("disk", lambda: forget(data), max(3, times // 8)),
    ):
        found = in_turns(works, before, count)
        alone, both, whole = (found[key] for key in works)
        rates = [data.layout.bytes / 1e9 / seconds for seconds, _ in (whole, alone, both)]
        print(f"  {name}: pass {rates[0]:.2f} GB/s; reading alone {rates[1]:.2f} by one thread, {rates[2]:.2f} by all")
        print(f"    seconds over reading's {whole[0] / alone[0]:.2f}, over that by all {whole[0] / both[0]:.2f}; "
              f"processor time over reading's {whole[1] / alone[1]:.2f}")  # fmt: skip
        out[name] = found
    return out


def memory(folder: Path, share: float) -> dict[str, Any]:
    """The largest memory of a process that fits the shards, and of one that only imports."""
    code = f"""
import sys, tercet, tercet.objectives.sharded
if sys.argv[1] == "fit":
    shards = tercet.Shards("{folder}/X-*.npy", "{folder}/y-*.npy")
    size = int({share} * 8 * shards.n * (shards.layout.columns + 2))
    tercet.minimize(tercet.LinearModel(shards, loss="logistic", l2=1e-6, sample_bytes=size), max_iterations=12)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))  # what getrusage says includes who started it
print(float(status["VmHWM"].split()[0]) / 1e6)
"""
    peaks = [
        float(subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, check=True).stdout)
        for how in ("import", "fit")
    ]
    print(f"  peak memory {peaks[1]:.2f} GB, of which imports {peaks[0]:.2f} GB")
    return {"peak GB": peaks[1], "imports GB": peaks[0]}


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A cluster of processes on this machine."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def with_dask(data: tercet.Shards, times: int) -> dict[str, Any]:
    """A pass on two workers, over one of this process by one thread, and by one for each processor."""
    import tercet.dask

    def point(threads: int) -> Any:
        model = tercet.LinearModel(data, loss="logistic", l2=1e-6, engine=Local(data, threads=threads))
        return model.over(None).at(np.full(model.d, 0.01))

    alone, all_ = point(1), point(os.cpu_count() or 1)
    expected = alone.first()
    with cluster(2) as client:
        there = tercet.dask.LinearModel(data, client=client, loss="logistic", l2=1e-6).over(None).at(alone.x)
        got = there.first()
        works = {"two workers": there.first, "one thread": alone.first, "all processors": all_.first}
        found = {name: seconds for name, (seconds, _) in in_turns(works, lambda: None, times).items()}
    same = got[0] == expected[0] and bool(np.array_equal(got[1], expected[1]))
    for name in ("one thread", "all processors"):
        print(f"  two workers {found['two workers']:.2f} s, one process by {name} {found[name]:.2f} s; "
              f"ratio {found['two workers'] / found[name]:.2f}; same bits: {same}")  # fmt: skip
    return {**found, "same bits": same}


def peers(shards: dict[str, tercet.Shards], share: float, penalties: Sequence[float]) -> dict[str, Any]:
    """SGD over the same shards; ours and the peers of Dask on two workers that hold the data."""
    out = {}
    for name, data in shards.items():
        bytes_ = int(share * 8 * data.n * (data.layout.columns + 2))
        for l2 in penalties:
            print(f"  {name}")
            out[f"SGD, {name}, l2 {l2:g}"] = sgd(data, l2, bytes_)
            with cluster(2) as client:
                out[f"dask, {name}, l2 {l2:g}"] = dask_ml(client, data, l2, bytes_, 1e-6)
    return out


def kills(data: tercet.Shards, times: int, share: float) -> dict[str, Any]:
    """A worker of two is killed at a random moment of a run: same bits, and how much longer?"""
    import tercet.dask

    chance = random.Random(0)
    size = int(share * 8 * data.n * (data.layout.columns + 2))
    good, extra, retries = 0, [], 0

    def run(client: Any) -> tuple[Any, float]:
        model = tercet.dask.LinearModel(data, client=client, loss="logistic", l2=1e-6, sample_bytes=size)
        start = time.perf_counter()
        return tercet.minimize(model, order=2), time.perf_counter() - start

    with cluster(2) as client:
        run(client)
        whole, usual = run(client)
    for _ in range(times):
        with cluster(2) as client:
            run(client)  # imports and compiled loops are there
            pids = [nanny.pid for nanny in client.cluster.workers.values()]
            timer = threading.Timer(chance.uniform(0.05, 0.9) * usual, os.kill, (chance.choice(pids), signal.SIGKILL))
            timer.start()
            result, spent = run(client)
            timer.join()
        same = np.array_equal(result.x, whole.x) and np.array_equal(result.trace["f"], whole.trace["f"])
        good, retries = good + bool(same and result.status == whole.status), retries + result.retries
        extra.append(spent - usual)
    print(f"  {good} of {times} with the same bits, {retries} tasks done again; a run takes {usual:.1f} s, with a kill "
          f"{np.median(extra):+.1f} s (at most {max(extra):+.1f} s)")  # fmt: skip
    return {"same bits": good, "of": times, "retries": retries, "seconds": usual, "extra": extra}


def main() -> None:
    """Run the parts and print a line or a few for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=0.8)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--sample", type=float, default=0.05)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument(
        "--turns", type=int, default=24, help="runs of a pass and of reading, of which the shortest counts"
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--kinds", default="independent,factor,units", help="of the data, for rounds and giant")
    parser.add_argument("--l2", type=float, nargs="+", default=L2, help="penalties of rounds")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    chosen = options.only.split(",")
    rows = int(options.gb * 1e9 / (8 * (options.columns + 1)))
    versions = f"tercet {tercet.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    print(
        f"{versions}, Python {platform.python_version()}, {os.cpu_count()} processors; BLAS on one thread within passes"
    )
    print(f"{rows} x {options.columns}, {options.gb:g} GB in {SHARDS} shards, sample {options.sample:g} of the rows")
    folder = Path(tempfile.mkdtemp(prefix="tercet-scale-", dir=options.folder))
    found: dict[str, Any] = {"rows": rows, "columns": options.columns, "versions": versions, "sample": options.sample}
    try:
        several = {"rounds", "giant", "peers"} & {*chosen}
        kinds = options.kinds.split(",") if several else ["independent"]
        kinds += ["ordered"] if "giant" in chosen else []
        shards = {kind: generate(folder / kind, rows, options.columns, kind) for kind in kinds}
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "rounds": lambda: rounds({k: v for k, v in shards.items() if k != "ordered"}, options.sample, options.l2),
            "pass": lambda: one_pass(shards[kinds[0]], options.turns),
            "memory": lambda: memory(folder / kinds[0], options.sample),
            "dask": lambda: with_dask(shards[kinds[0]], options.turns),
            "kills": lambda: kills(shards[kinds[0]], options.kills, options.sample),
            "giant": lambda: against_giant(shards, options.sample),
            "peers": lambda: peers(shards, options.sample, options.l2),
        }
        for name in chosen:
            print(name)
            found[name] = parts[name]()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["peak GB here"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
