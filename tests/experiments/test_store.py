"""The folder of a comparison: every finished run survives crashes, full disks and second writers."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tercet.experiments import store
from tercet.experiments.store import Store, StoreError

SETTINGS = {"data": ["digits"], "seeds": 3, "versions": {"numpy": "1"}, "started": "now"}


def run_of(seed):
    key = {"dataset": "digits", "l2": 1e-3, "start": "N", "seed": seed, "method": "<b>STM</b> é"}
    return {"key": key, "error": None, "fun": 0.5, "trace": {"f": [1.0, None]}}


def opened(folder, settings=SETTINGS, notices=None):
    return Store(folder, settings, (notices if notices is not None else []).append)


def test_what_is_appended_is_there_at_once_and_again(tmp_path):
    with opened(tmp_path / "a" / "b") as s:
        for seed in range(3):
            s.append("runs.jsonl", run_of(seed))
            assert len(store.read(s.folder)) == seed + 1
        assert store.read(s.folder)[2] == run_of(2)
    with opened(tmp_path / "a" / "b") as s:
        assert [store.key_of(record)[3] for record in s.records["runs.jsonl"]] == [0, 1, 2]
        assert "trace" not in s.records["runs.jsonl"][0]


def test_a_line_is_on_the_disk_before_append_returns(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), real(handle)))
    with opened(tmp_path) as s:
        synced.clear()
        s.append("runs.jsonl", run_of(0))
        assert synced


@pytest.mark.parametrize("cut", [1, 5, 40, "newline", "zeros"])
def test_a_torn_last_line_is_cut_off_with_a_notice(cut, tmp_path):
    with opened(tmp_path) as s:
        for seed in range(2):
            s.append("runs.jsonl", run_of(seed))
    path = tmp_path / "runs.jsonl"
    whole = path.read_bytes()
    torn = {"newline": whole[:-1], "zeros": whole + b"\0" * 50}.get(cut) or whole[:-cut]
    path.write_bytes(torn)
    notices = []
    with opened(tmp_path, notices=notices) as s:
        kept = len(s.records["runs.jsonl"])
        assert kept == (2 if cut == "zeros" else 1)
        assert len(notices) == 1
        assert "dropped" in notices[0]
        s.append("runs.jsonl", run_of(9))
    assert len(store.read(tmp_path)) == kept + 1
    assert path.read_bytes().startswith(whole.splitlines(keepends=True)[0])


def test_a_bad_line_in_the_middle_is_refused_with_its_place(tmp_path):
    with opened(tmp_path) as s:
        s.append("runs.jsonl", run_of(0))
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(ValueError, match=r"runs\.jsonl:1: not a stored record"), opened(tmp_path):
        pass


def test_another_comparison_is_refused_with_the_difference(tmp_path):
    with opened(tmp_path):
        pass
    with pytest.raises(StoreError, match=r"seeds was 3 and is 5"), opened(tmp_path, {**SETTINGS, "seeds": 5}):
        pass
    with opened(tmp_path, {**SETTINGS, "started": "later"}):
        pass


def test_other_versions_are_a_notice(tmp_path):
    with opened(tmp_path):
        pass
    notices = []
    with opened(tmp_path, {**SETTINGS, "versions": {"numpy": "2"}}, notices):
        pass
    assert "numpy was 1, is 2" in notices[0]


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "comparison.json").write_text("[1]")
    with pytest.raises(ValueError, match="not the settings"), opened(tmp_path):
        pass
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(ValueError, match="not the settings"), opened(tmp_path):
        pass
    (tmp_path / "comparison.json").unlink()
    (tmp_path / "runs.jsonl").write_text("")
    with pytest.raises(StoreError, match=r"no comparison\.json"), opened(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match="holds no comparison"):
        store.read_settings(tmp_path / "nowhere")


def test_one_writer_at_a_time_in_one_process_and_in_two(tmp_path):
    code = (
        "import sys, pathlib\nfrom tercet.experiments.store import Store\n"
        f"with Store(pathlib.Path({str(tmp_path)!r}), {SETTINGS!r}): pass"
    )
    with opened(tmp_path):
        with pytest.raises(StoreError, match="another comparison is writing"), opened(tmp_path):
            pass
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another comparison is writing" in other.stderr
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Full:
    """A file on a disk that takes `room` more bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def fileno(self):
        return self.file.fileno()

    def write(self, data):
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = bytes(data[: self.room])
        self.room -= len(part)
        return self.file.write(part)


@pytest.mark.parametrize("room", [0, 1, 30])
def test_a_full_disk_is_told_and_loses_no_finished_run(room, tmp_path, monkeypatch):
    with opened(tmp_path) as s:
        s.append("runs.jsonl", run_of(0))
        before = (tmp_path / "runs.jsonl").read_bytes()
        with monkeypatch.context() as patch:
            full = lambda *a, **k: Full(open(*a, **k), room)  # noqa: E731, SIM115 (closed by Full)
            patch.setattr(store, "open", full, raising=False)
            with pytest.raises(OSError, match=r"the disk is full.*1 finished records are safe"):
                s.append("runs.jsonl", run_of(1))
        assert (tmp_path / "runs.jsonl").read_bytes() == before
        s.append("runs.jsonl", run_of(1))  # room was made
    assert len(store.read(tmp_path)) == 2


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_read_only_folder_is_told(code, tmp_path, monkeypatch):
    def refuse(*a, **k):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with (
            pytest.raises(OSError, match=r"cannot write into .*choose another folder with --out"),
            opened(tmp_path / "x"),
        ):
            pass
    with opened(tmp_path) as s:
        s.append("runs.jsonl", run_of(0))
        monkeypatch.setattr(store, "open", refuse, raising=False)
        with pytest.raises(OSError, match=r"choose another folder.*1 finished records are safe"):
            s.append("runs.jsonl", run_of(1))


def test_a_file_where_the_folder_should_be_is_told(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(OSError, match="it is a file, not a folder"), opened(tmp_path / "x"):
        pass


def test_nan_is_never_stored(tmp_path):
    with opened(tmp_path) as s, pytest.raises(ValueError, match="JSON"):
        s.append("runs.jsonl", {**run_of(0), "fun": float("nan")})
    assert store.read(tmp_path) == []
    assert json.loads((tmp_path / "comparison.json").read_text())["format"] == 1


def test_texts_that_are_no_utf8_are_stored(tmp_path):
    odd = {**run_of(0), "error": "OSError: \udcff is no file\r\n\x00"}
    with opened(tmp_path) as s:
        s.append("runs.jsonl", odd)
        s.append("runs.jsonl", run_of(1))
    assert store.read(tmp_path)[0] == odd
    assert len(store.read(tmp_path)) == 2
