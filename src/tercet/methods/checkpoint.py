"""Checkpoints: a run on disk, from which it is continued bit for bit. No pickle.

A checkpoint is a journal of frames. The first holds the settings, a fingerprint of the problem and the start; each
holds the state of the method where nothing is under way, as after an accepted step, the counts, and the rows of the
trace since the frame before. A frame is appended with its length and checksum, so that a reader finds a whole one or
none, and writing one takes no longer in a long run than in a short one. When what was appended outgrows the rest, the
journal is written anew.

Seconds lie between two frames, or as many iterations as were asked for, and the last state is written at the end: when
a frame is written decides how much is lost with the machine, and nothing of the run.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import numpy as np

from tercet.checks import regular_file
from tercet.methods.state import State
from tercet.result import Row
from tercet.storage import UNREADABLE, put_together, rows_from_table, table_of_rows, take_apart

FORMAT, VERSION = "tercet checkpoint", 4
FRAME = struct.Struct("<8sQI")  # a mark, the length of the frame and its checksum
MARK = b"tercet\x00\x04"
ROOM = 2**20  # bytes that may always be appended before a journal is written anew

PAUSE = 10.0  # seconds between frames, where no number of iterations was asked for

Identity = tuple[int, int, int]


class CheckpointError(ValueError):
    """A file that is no checkpoint, or one of another problem or other settings."""


@dataclass(eq=False)
class Checkpoint:
    """What a file holds: settings (JSON), state and counts, the trace, and the problem's fingerprint."""

    settings: dict[str, Any]
    fingerprint: dict[str, str]
    x0: Any
    n: int
    state: dict[str, Any]
    tally: dict[str, int]
    trace: list[Row]
    seconds: float


@dataclass(eq=False)
class Writer:
    """Writes a frame every `PAUSE` seconds, or after every `every`-th iteration, where a run can be taken up again."""

    path: Path
    settings: dict[str, Any]
    fingerprint: dict[str, str]
    x0: Any
    n: int
    every: int | None = None
    written: int = 0  # rows that are in the file
    base: int = 0  # bytes of the first frame; 0 before there is one
    size: int = field(default=0, init=False)  # bytes of all frames
    left: Identity | None = field(default=None, init=False)  # the file as this writer left it
    last: float = field(default=-inf, init=False)  # when it was last tried, on the clock of `perf_counter`
    latest: tuple[State, dict[str, int], int] | None = field(default=None, init=False)  # a state, its counts, its rows
    failure: OSError | None = field(default=None, init=False)  # why the last write did not succeed

    def offer(self, state: State, tally: dict[str, int], rows: list[Row]) -> None:
        """Keep in mind a state from which the method can go on, and write it, if it is time."""
        if not state.settled:
            return
        self.latest = state.still, dict(tally), len(rows)
        waited = perf_counter() - self.last >= PAUSE if self.every is None else len(rows) >= self.written + self.every
        if waited:
            self.flush(rows)

    def flush(self, rows: list[Row]) -> None:
        """Write the latest state, if it is not in the file.

        A disk that is full does not cost the run: it goes on, warns once, and tries again when it is time.
        """
        if self.latest is None or self.latest[2] <= self.written:
            return
        self.last = perf_counter()
        try:
            state, tally, count = self.latest
            self.write(state, tally, rows[:count])
            self.failure = None
        except OSError as error:
            first, self.failure = self.failure is None, error
            if first:
                with suppress(Warning):  # also where warnings are errors the result is worth more
                    warnings.warn(self.complaint(), RuntimeWarning, stacklevel=2)

    def complaint(self) -> str:
        """What went wrong with the last write, as a sentence; empty where nothing did."""
        if self.failure is None:
            return ""
        return f"The checkpoint {str(self.path)!r} could not be written ({self.failure}); it holds {self.written} rows."

    def write(self, state: State, tally: dict[str, int], rows: list[Row]) -> None:
        """Append a frame, or write the journal anew."""
        grown = self.base and self.size - self.base <= max(self.base, ROOM)
        if grown and self.left == identity(self.path):
            frame = self.frame(state, tally, rows, rows[self.written :], {})
            with open(self.path, "ab") as file:
                put(file, frame)
            self.size += len(frame)
        else:
            leaves: list[Any] = []
            start = {
                "format": FORMAT,
                "version": VERSION,
                "settings": self.settings,
                "fingerprint": self.fingerprint,
                "x0": take_apart(self.x0, leaves),
                "n": self.n,
            }
            frame = self.frame(state, tally, rows, rows, start, {f"x{i}": np.asarray(x) for i, x in enumerate(leaves)})
            with whole_file(self.path) as file:
                file.write(frame)
            self.base = self.size = len(frame)
        self.written, self.left = len(rows), identity(self.path)

    def frame(
        self, state: State, tally: dict[str, int], rows: list[Row], new: list[Row], start: dict[str, Any],
        leaves: dict[str, Any] | None = None,
    ) -> bytes:  # fmt: skip
        """A state as bytes, with some rows of the trace and, in the first, what all of them share."""
        arrays: dict[str, Any] = {}
        kept = set_arrays_aside(state.arrays(), arrays)
        header = {**start, "state": kept, "tally": tally, "seconds": rows[-1].seconds, "rows": len(rows)}
        out = io.BytesIO()
        arrays = {**arrays, **(leaves or {}), "trace": table_of_rows(new), "header": np.array(json.dumps(header))}
        np.savez(out, allow_pickle=False, **arrays)
        body = out.getvalue()
        return FRAME.pack(MARK, len(body), zlib.crc32(body)) + body


def identity(path: Path) -> Identity | None:
    """Which file lies there, its length and when it was written: whether it is still the same; None where none is."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def put(file: IO[bytes], data: bytes) -> None:
    """Write, and see it on the disk."""
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there whole, and durable, once it is written, or not at all."""
    temporary = beside(path)
    try:
        with open(temporary, "wb") as file:
            yield file
            put(file, b"")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def beside(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def try_to_write(path: Path) -> None:
    """OSError where `whole_file` could not write, as far as that can be known without taking the place of a file."""
    temporary = beside(path)
    temporary.touch()
    temporary.unlink()
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is read-only")


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be synced."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(path: str | Path) -> Checkpoint:
    """The checkpoint in a file; CheckpointError for anything that is not one."""
    try:
        frames = list(frames_of(regular_file("resume", path).read_bytes()))
        first, arrays = frames[0]
        if first.get("format") != FORMAT or first.get("version") != VERSION:
            raise ValueError(f"it has version {first.get('version')}, and this tercet reads version {VERSION}")
        n, (last, its) = int(first["n"]), frames[-1]
        trace = [row for _, parts in frames for row in rows_from_table(parts["trace"], n)]
        if len(trace) != last["rows"]:
            raise ValueError(f"it has {len(trace)} rows of {last['rows']}")
        return Checkpoint(
            dict(first["settings"]),
            dict(first["fingerprint"]),
            put_together(first["x0"], arrays),
            n,
            bring_arrays_back(last["state"], its),
            {name: int(count) for name, count in last["tally"].items()},
            trace,
            float(last["seconds"]),
        )
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"resume({str(path)!r}): not a usable checkpoint ({error}).") from error


def frames_of(data: bytes) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Header and arrays of each frame. A last one that is not whole was being written; those before it count."""
    place, found = 0, 0
    while place < len(data):
        body, end = cut_frame(data, place)
        if body is None and found and data.find(MARK, place + 1) < 0:  # no other follows
            return
        if body is None:
            raise ValueError("it is damaged" if data[:8] == MARK else "it does not begin like a tercet checkpoint")
        check_size(io.BytesIO(body), len(body))
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")))
        if not isinstance(header, dict):
            raise ValueError("its header is not that of a tercet checkpoint")
        yield header, arrays
        place, found = end, found + 1
    if not found:
        raise ValueError("it is empty")


def cut_frame(data: bytes, place: int) -> tuple[bytes | None, int]:
    """The frame that begins there, None where it is not whole, and where it ends."""
    if len(data) - place < FRAME.size:
        return None, len(data)
    mark, length, checksum = FRAME.unpack_from(data, place)
    begin = place + FRAME.size
    body = data[begin : begin + length]
    whole = mark == MARK and len(body) == length and zlib.crc32(body) == checksum
    return (body if whole else None), begin + length


def check_size(raw: Any, size: int) -> None:
    """Refuse an archive that would unpack to far more than it holds: checkpoints are not compressed."""
    with zipfile.ZipFile(raw) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > size + 2**20:
        raise ValueError(f"it would unpack from {size} to {unpacked} bytes, but checkpoints are not compressed")


def set_arrays_aside(state: Any, arrays: dict[str, Any]) -> Any:
    """The state as JSON, its arrays under names of their own."""
    if isinstance(state, dict):
        return {key: set_arrays_aside(value, arrays) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        name = f"state{len(arrays)}"
        arrays[name] = state
        return {"array": name}
    return state


def bring_arrays_back(state: Any, arrays: dict[str, Any]) -> Any:
    """The state again."""
    if isinstance(state, dict):
        return (
            arrays[state["array"]]
            if set(state) == {"array"}
            else {k: bring_arrays_back(v, arrays) for k, v in state.items()}
        )
    return state


def describe(part: Any) -> Any:
    """A part (a frozen dataclass of settings) as JSON: its class and its fields; numbers and None as they are."""
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        values = {f.name: describe(getattr(part, f.name)) for f in dataclasses.fields(part) if f.init}
        return {"class": type(part).__qualname__, **values}
    if isinstance(part, tuple | list):
        return [describe(value) for value in part]
    if isinstance(part, np.generic):
        return part.item()
    return part if isinstance(part, str | int | float | bool | None) else repr(part)


def rebuild(description: Any, known: dict[str, type]) -> Any:
    """A part from its description; CheckpointError names a class that is not one of ours."""
    if isinstance(description, list):
        return tuple(rebuild(value, known) for value in description)
    if not isinstance(description, dict):
        return description
    values = dict(description)
    name = values.pop("class")
    if name not in known:
        raise CheckpointError(
            f"resume: the run used {name}, which is not a part of tercet; pass the same method=... again."
        )
    return known[name](**{key: rebuild(value, known) for key, value in values.items()})


def differences(saved: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The named values in which two descriptions differ."""
    keys = [key for key in sorted({*saved, *now}) if saved.get(key) != now.get(key)]
    return [f"{key} was {saved.get(key)!r} and is {now.get(key)!r}" for key in keys]
