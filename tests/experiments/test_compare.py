"""The driver: every run is made once, failures are rows, and a killed comparison ends as an uninterrupted one."""

import io
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tercet.experiments import compare as driver
from tercet.experiments import spec, store
from tercet.experiments.compare import Progress, compare

SMALL = {"data": ["degenerate:256"], "l2": [0, "1e-1/n"], "seeds": 2, "methods": ["STM", "SCR"], "max_epochs": 15}


def small(**changes):
    return spec.located(None, {**SMALL, **changes})


def timeless(record):
    """A stored record without what depends on the clock."""
    out = {name: value for name, value in record.items() if name != "seconds"}
    if "trace" in record:
        out["trace"] = {name: column for name, column in record["trace"].items() if name != "seconds"}
    return out


def contents(folder):
    """All that is stored, sorted by key, without seconds."""
    out = {}
    for name in store.FILES:
        records = [timeless(record) for record in store.read(folder, name)]
        out[name] = sorted(records, key=lambda r: str(r.get("key") or (r["dataset"], r["l2"])))
    return out


def keys(folder, name="runs.jsonl"):
    return [store.key_of(record) for record in store.read(folder, name)]


def test_every_run_is_made_once_and_again_nothing(tmp_path):
    outcome = compare(small(), tmp_path, jobs=2)
    assert (outcome.runs, outcome.new, outcome.failed) == (8, 8, 0)
    assert len(set(keys(tmp_path))) == 8
    lines = store.read(tmp_path, "references.jsonl")
    assert {line["l2"] for line in lines} == {0.0, 0.1 / 256}
    assert all(line["minima"] for line in lines)
    notes = {record["key"]["l2"]: record["lambda_note"] for record in store.read(tmp_path)}
    assert notes == {0.0: "", 0.1 / 256: "0.1 on the sum = 0.000391 on the mean"}
    before = {name: (tmp_path / name).read_bytes() for name in store.FILES if (tmp_path / name).exists()}
    assert compare(small(), tmp_path, jobs=1).new == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    settings = store.read_settings(tmp_path)
    assert settings["data_info"]["degenerate:256"]["n"] == 256
    assert set(settings["versions"]) >= {"tercet", "numpy", "scipy", "python"}


def test_a_grid_is_tuned_by_the_lowest_mean_objective_and_all_of_it_is_stored(tmp_path):
    comparison = small(l2=[0], methods=["SGD"], seeds=3, max_epochs=3, starts=["N"])
    compare(comparison, tmp_path, jobs=2)
    tuning = store.read(tmp_path, "tuning.jsonl")
    assert len(tuning) == 15 * 2  # all points of the grid, seeds 0 and 1
    ends = {}
    for record in tuning:
        ends.setdefault(record["key"]["method"], []).append(np.inf if record["fun"] is None else record["fun"])
    best = min(ends, key=lambda label: np.mean(ends[label]))
    made = store.read(tmp_path)
    assert sorted(record["key"]["seed"] for record in made) == [0, 1, 2]
    assert {record["key"]["method"] for record in made} == {"SGD"}
    assert all(record["settings"]["tuned"].startswith(best + ":") for record in made)
    words = dict(word.split("=") for word in best.split()[1:])
    assert all(record["settings"]["step"] == float(words["step"]) for record in made)
    # a run that was made for tuning is not made again
    source = next(r for r in tuning if r["key"]["method"] == best and r["key"]["seed"] == 1)
    copy = next(r for r in made if r["key"]["seed"] == 1)
    assert copy["trace"] == source["trace"]
    assert copy["seconds"] == source["seconds"]


def test_a_method_that_fails_is_a_row_and_not_the_end(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text(
        "import os, tercet\n"
        "class Raises(tercet.SGD):\n    def kernel(self, run):\n        raise RuntimeError('<i>no</i>')\n"
        "class Dies(tercet.SGD):\n    def kernel(self, run):\n        os._exit(7)\n"
        "def steepest(fun, x0, args, jac=None, callback=None, rate=1.0, **rest):\n"
        "    from scipy.optimize import OptimizeResult\n"
        "    x = x0\n"
        "    while True:\n        x = x - rate * jac(x)\n        callback(x)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {
        "Raises": {"use": "failing:Raises"},
        "Dies": {"use": "failing:Dies"},
        "Steepest": {"use": "failing:steepest", "kind": "scipy", "grid": {"rate": [0.01, 0.1]}},
    }
    comparison = small(l2=[0], own=own)
    outcome = compare(comparison, tmp_path / "out", jobs=2)
    assert (outcome.runs, outcome.failed) == (10, 4)
    made = {record["key"]["method"]: record for record in store.read(tmp_path / "out")}
    errors = {method: record["error"] for method, record in made.items()}
    assert errors["Steepest"] is None
    assert made["Steepest"]["status"] == "MAX_EPOCHS"
    assert made["Steepest"]["settings"]["tuned"].startswith("Steepest rate=")
    assert errors["STM"] is None
    assert errors["Raises"] == "RuntimeError: <i>no</i>"
    assert "ended with code 7" in errors["Dies"]
    assert compare(comparison, tmp_path / "out", jobs=2).new == 0


def test_a_file_of_the_users_own_is_compared(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{1 + (i % 3 == 0)} 1:{rng.normal():.3f} 2:{rng.normal() + (i % 3 == 0):.3f}" for i in range(60)]
    (tmp_path / "mine.txt").write_text("\n".join(lines) + "\n")
    files = {"mine": str(tmp_path / "mine.txt")}
    comparison = small(data=["mine"], files=files, l2=[1e-2], seeds=1)
    assert compare(comparison, tmp_path / "out", jobs=1).failed == 0
    assert store.read(tmp_path / "out")[0]["n"] == 60


def test_bad_data_is_told_before_any_run(tmp_path, monkeypatch):
    monkeypatch.delenv("TERCET_DATA", raising=False)
    monkeypatch.setattr("tercet.datasets.catalogue.folders", lambda data_dir: iter(()))
    with pytest.raises(FileNotFoundError, match=r"--data-dir.*TERCET_DATA.*--download"):
        compare(small(data=["a9a"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="logistic"):
        compare(small(loss="logistic"), tmp_path / "out")
    with pytest.raises(ValueError, match="jobs=0"):
        compare(small(), tmp_path / "out", jobs=0)


def test_another_comparison_does_not_mix_into_the_folder(tmp_path):
    compare(small(l2=[0], seeds=1), tmp_path, jobs=1)
    with pytest.raises(OSError, match="seeds was 1 and is 2"):
        compare(small(l2=[0]), tmp_path, jobs=1)


def test_a_full_disk_in_the_middle_loses_nothing_and_the_next_call_goes_on(tmp_path, monkeypatch):
    import errno

    real = store.Store.append
    calls = []

    def append(self, name, record):
        calls.append(name)
        if len(calls) == 4:
            raise self.explained(OSError(errno.ENOSPC, "No space left on device"))
        real(self, name, record)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "append", append)
        with pytest.raises(OSError, match=r"disk is full.*3 finished records are safe"):
            compare(small(), tmp_path / "a", jobs=2)
    assert len(keys(tmp_path / "a")) == 3
    assert compare(small(), tmp_path / "a", jobs=2).new == 5
    compare(small(), tmp_path / "b", jobs=1)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


CODE = """
import sys
from pathlib import Path
from tercet.experiments import spec
from tercet.experiments.compare import compare
flags = {"data": ["degenerate:512"], "l2": [0, 1e-3], "seeds": 3, "methods": ["STM", "SCR", "STM-paper", "L-BFGS"],
         "max_epochs": 20}
print("begun", flush=True)
compare(spec.located(None, flags), Path(sys.argv[1]), jobs=2)
"""


def stored(folder):
    """Bytes of records."""
    return sum((folder / name).stat().st_size for name in store.FILES if (folder / name).exists())


def kill_in_the_middle(folder, delay):
    """Begin the comparison, and kill it `delay` seconds after it stored something new; True if it was killed."""
    before = stored(folder)
    process = subprocess.Popen([sys.executable, "-c", CODE, str(folder)], stdout=subprocess.DEVNULL)
    while process.poll() is None and stored(folder) == before:
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is sent the POSIX way")
def test_a_comparison_killed_at_random_moments_ends_with_the_runs_of_an_uninterrupted_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([sys.executable, "-c", CODE, str(whole)], check=True, stdout=subprocess.DEVNULL)
    delays = np.random.default_rng().uniform(0.0, 0.3, 5)  # other moments each time
    kills = [kill_in_the_middle(killed, float(delay)) for delay in delays]
    subprocess.run([sys.executable, "-c", CODE, str(killed)], check=True, stdout=subprocess.DEVNULL)
    assert any(kills)
    assert contents(killed) == contents(whole), delays
    assert len(keys(killed)) == len(set(keys(killed))) == 24


@pytest.mark.skipif(os.name != "posix", reason="signals are sent the POSIX way")
def test_an_interrupt_keeps_finished_runs_and_leaves_no_worker(tmp_path):
    words = ["compare", "--data", "degenerate", "--l2", "0", "--methods", "SGD", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tercet.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a background job of a shell ignores interrupts, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(300):
        if store.read(tmp_path / "out", "tuning.jsonl"):
            break
        time.sleep(0.1)
    workers = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "finished records are in" in err
    assert "Traceback" not in err
    assert store.read(tmp_path / "out", "tuning.jsonl")
    assert workers
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def children(pid):
    """The processes that a process started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid:
            found.append(int(name))
    return found


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only():
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        progress = Progress(stream, pause=0.0)
        progress.enter("runs", 3, 1)
        progress.step(False)
        progress.step(True)
        progress.clear()
        assert bool(stream.getvalue()) == shown
        if shown:
            assert "runs 3/3  1 failed" in stream.getvalue()
            assert "left" in stream.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (300, "5 min"), (7200, "2.0 h")])
def test_times_are_short(seconds, text):
    assert driver.clock(seconds) == text
