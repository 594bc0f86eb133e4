"""Checkpoints: a run on disk, written so that a reader finds a whole one or none, and continued bit for bit.

A checkpoint is one .npz file, arrays and a JSON header, no pickle. It holds the settings, the state of the method after
an accepted step, the counts and the trace, and a fingerprint of the problem.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from tercet.result import COLUMNS, Row
from tercet.storage import UNREADABLE, as_numbers, put_together, rows, take_apart

FORMAT, VERSION = "tercet checkpoint", 3


class CheckpointError(ValueError):
    """A file that is no checkpoint, or one of another problem or other settings."""


@dataclass(eq=False)
class Checkpoint:
    """What a file holds: settings (JSON), the state of the method, the trace, and the problem's fingerprint."""

    settings: dict[str, Any]
    fingerprint: dict[str, str]
    state: dict[str, Any]
    trace: list[Row]
    x0: Any
    seconds: float
    n: int


@dataclass(eq=False)
class Writer:
    """Writes a checkpoint after every `every`-th iteration, at the first accepted step from there."""

    path: Path
    settings: dict[str, Any]
    fingerprint: dict[str, str]
    x0: Any
    n: int
    every: int = 1
    written: int = field(default=0)

    def offer(self, state: dict[str, Any] | None, trace: list[Row]) -> None:
        """Write, if it is time and the method is at a point from which it can go on."""
        if state is None or len(trace) < self.written + self.every:
            return
        self.written = len(trace)
        write(self.path, Checkpoint(self.settings, self.fingerprint, state, trace, self.x0, trace[-1].seconds, self.n))


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write to a temporary file beside the path, flush it to the disk, and rename it over the old checkpoint."""
    leaves: list[Any] = []
    arrays: dict[str, Any] = {}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "settings": checkpoint.settings,
        "fingerprint": checkpoint.fingerprint,
        "x0": take_apart(checkpoint.x0, leaves),
        "state": set_arrays_aside(checkpoint.state, arrays),
        "seconds": checkpoint.seconds,
        "n": checkpoint.n,
    }
    arrays |= {f"x{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {
        f"trace_{name}": as_numbers(np.array([row.as_dict()[name] for row in checkpoint.trace])) for name in COLUMNS
    }
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there whole, and durable, once it is written, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


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
        with open(path, "rb") as raw:
            check_size(raw, os.path.getsize(path))
            with np.load(raw, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                if not isinstance(header, dict) or header.get("format") != FORMAT:
                    raise ValueError("its header is not that of a tercet checkpoint")
                if header.get("version") != VERSION:
                    raise ValueError(f"it has version {header.get('version')}, and this tercet reads version {VERSION}")
                arrays = {name: file[name] for name in file.files}
        state = bring_arrays_back(header["state"], arrays)
        trace = rows(arrays, int(header["n"]))
        x0 = put_together(header["x0"], arrays)
        return Checkpoint(
            dict(header["settings"]),
            dict(header["fingerprint"]),
            state,
            trace,
            x0,
            float(header["seconds"]),
            int(header["n"]),
        )
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(f"resume({str(path)!r}): not a usable checkpoint ({error}).") from error


def check_size(raw: Any, size: int) -> None:
    """Refuse an archive that would unpack to far more than it holds: checkpoints are not compressed."""
    with zipfile.ZipFile(raw) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    raw.seek(0)
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
