"""The folder of a comparison: settings, and one line of JSON for each finished run, safe against crashes.

    comparison.json    the settings, the data and the versions
    runs.jsonl         the runs
    tuning.jsonl       the runs that grids were tuned with
    references.jsonl   the minima of each data set and penalty

A line is written whole, flushed and synced before the run counts as finished. A line that a crash cut off is dropped
when the folder is opened again. One comparison at a time writes into a folder.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from tercet.methods.checkpoint import sync_folder, whole_file

FORMAT = 1
SETTINGS = "comparison.json"
FILES = ("runs.jsonl", "tuning.jsonl", "references.jsonl")
FREE = ("versions", "started", "paper")  # what may differ between two sittings of one comparison

Record = dict[str, Any]


class StoreError(OSError):
    """The folder cannot be written, or belongs to another comparison; no finished run is lost."""


class Store:
    """A folder that is open for writing; use it in a `with`."""

    def __init__(self, folder: Path, settings: Record, notice: Callable[[str], None] = lambda text: None):
        self.folder, self.settings, self.notice = Path(folder), settings, notice
        self.lock: IO[bytes] | None = None
        self.records: dict[str, list[Record]] = {}  # without their traces, which may be large

    def __enter__(self) -> Store:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = hold(self.folder)
            self.settle()
            self.records = {name: self.reopen(name) for name in FILES}
        except OSError as error:
            self.close()
            raise self.explained(error) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the folder go."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def settle(self) -> None:
        """Write the settings of a new folder, or compare with those of an old one."""
        path = self.folder / SETTINGS
        wanted = json.loads(json.dumps({"format": FORMAT, **self.settings}))
        if not path.exists():
            if any((self.folder / name).exists() for name in FILES):
                raise StoreError(f"{self.folder}: it has runs but no {SETTINGS}; choose another folder.")
            write_whole(path, json.dumps(wanted, indent=1, allow_nan=False) + "\n")
            return
        found = read_settings(self.folder)
        changed = differences(found, wanted)
        if changed:
            raise StoreError(
                f"{self.folder} holds another comparison: {'; '.join(changed)}. Choose another folder with --out, or "
                "ask for the same again."
            )
        old = found.get("versions", {})
        new = [f"{k} was {old.get(k)}, is {v}" for k, v in wanted.get("versions", {}).items() if old.get(k) != v]
        if new:
            self.notice(f"versions changed since the comparison was begun: {'; '.join(new)}")

    def reopen(self, name: str) -> list[Record]:
        """The records of a file; a last line that is not whole is cut off."""
        path = self.folder / name
        records, good = scan(path)
        if path.exists() and path.stat().st_size > good:
            self.notice(f"{path}: the last line was cut off by a crash and is dropped; that run is made again")
            with open(path, "r+b") as file:
                file.truncate(good)
                os.fsync(file.fileno())
        return [slim(record) for record in records]

    def append(self, name: str, record: Record) -> None:
        """Add a line, on the disk when this returns; where that fails, the file ends with the line before."""
        line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        path = self.folder / name
        before = path.stat().st_size if path.exists() else 0
        try:
            with open(path, "ab", buffering=0) as file:
                write_all(file, line)
                os.fsync(file.fileno())
        except OSError as error:
            self.restore(path, before)
            raise self.explained(error) from error
        if before == 0:
            sync_folder(self.folder)
        self.records[name].append(slim(record))

    def restore(self, path: Path, size: int) -> None:
        """Cut off what a failed write left; where that fails as well, the next opening does it."""
        try:
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
        except OSError:
            pass

    def explained(self, error: OSError) -> OSError:
        """The error in words that help."""
        if isinstance(error, StoreError):
            return error
        kept = sum(len(records) for records in self.records.values())
        safe = f" The {kept} finished records are safe; the same command goes on from there." if kept else ""
        why = {
            errno.ENOSPC: "the disk is full; make room",
            errno.EDQUOT: "the quota is used up; make room",
            errno.EROFS: "the file system is read-only; choose another folder with --out",
            errno.EACCES: "no permission to write; choose another folder with --out",
            errno.EPERM: "no permission to write; choose another folder with --out",
            errno.EEXIST: "it is a file, not a folder; choose another with --out",
            errno.ENOTDIR: "a part of the path is a file, not a folder; choose another with --out",
        }.get(error.errno or 0, str(error))
        return StoreError(f"cannot write into {self.folder}: {why}.{safe}")


# --- reading


def read_settings(folder: Path) -> Record:
    """comparison.json; ValueError where it is none of ours."""
    path = Path(folder) / SETTINGS
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no comparison: {SETTINGS} is not there.") from None
    except ValueError as error:
        raise ValueError(f"{path}: not the settings of a comparison ({error}).") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: not the settings of a comparison of format {FORMAT}.")
    return found


def read(folder: Path, name: str = "runs.jsonl") -> list[Record]:
    """The whole lines of a file; the folder may be in use."""
    return scan(Path(folder) / name)[0]


def scan(path: Path) -> tuple[list[Record], int]:
    """The records of a file and the bytes up to the end of the last whole one; ValueError for a bad line before it."""
    if not path.exists():
        return [], 0
    records, good = [], 0
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not line.endswith(b"\n") or not isinstance(record, dict):
                raise ValueError("not a whole line")
        except ValueError as error:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number}: not a stored record ({error}).") from error
        records.append(record)
        good += len(line)
    return records, good


def slim(record: Record) -> Record:
    """A record without its trace."""
    return {name: value for name, value in record.items() if name != "trace"}


def key_of(record: Record) -> tuple[Any, ...]:
    """The key of a run, for sets and sorting."""
    k = record["key"]
    return k["dataset"], k["l2"], k["start"], k["seed"], k["method"]


def differences(found: Record, wanted: Record) -> list[str]:
    """The settings in which two comparisons differ."""
    keys = [key for key in sorted({*found, *wanted}) if key not in FREE and found.get(key) != wanted.get(key)]
    return [f"{key} was {shorten(found.get(key))} and is {shorten(wanted.get(key))}" for key in keys]


def shorten(value: Any) -> str:
    """The beginning of a value's text."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:200] + "..."


# --- writing


def hold(folder: Path) -> IO[bytes]:
    """Lock the folder until the file is closed or the process ends, however it ends."""
    file = open(folder / ".lock", "ab")  # noqa: SIM115 (open as long as the store is)
    try:
        lock(file)
    except OSError as error:
        file.close()
        raise StoreError(f"{folder}: another comparison is writing into this folder; wait for it to end.") from error
    return file


def lock(file: IO[bytes]) -> None:
    """An exclusive lock, at once or not at all."""
    if os.name == "nt":
        import msvcrt

        getattr(msvcrt, "locking")(file.fileno(), getattr(msvcrt, "LK_NBLCK"), 1)  # noqa: B009 (only there on Windows)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as file:
        write_all(file, text.encode())


def write_all(file: IO[bytes], data: bytes) -> None:
    """Write all bytes; an unbuffered file may take them in parts."""
    rest: Any = memoryview(data)
    while len(rest):
        rest = rest[file.write(rest) :]
