"""Results on disk: one .npz file with arrays and a JSON header, no pickle."""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from tercet.checks import regular_file
from tercet.records import ORDERS, Certificate, Counts, Meets, Sampling, Sizes, Status
from tercet.result import COLUMNS, LATER, Result, Row, Trace

FORMAT, VERSION = "tercet result", 1
TRAFFIC = ("rounds", "bytes_read", "retries")  # that files of earlier versions do not have

UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    EOFError,
    AttributeError,
    IndexError,
    OSError,
    RuntimeError,  # zipfile: an entry that asks for a password, or for a version it does not know
    tokenize.TokenError,  # NumPy: an array whose header is cut
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ArithmeticError,  # a number that is too large
    MemoryError,  # an array that says it is larger than it is
)  # what a damaged or foreign archive makes zipfile, NumPy and JSON raise


def save(result: Result, path: str | Path) -> None:
    """Write a result: x with its structure, the certificate, the counts and the trace. The exception is not kept."""
    leaves: list[Any] = []
    header = {
        "format": FORMAT,
        "version": VERSION,
        "x": take_apart(result.x, leaves),
        "status": result.status.name,
        "certificate": asdict(result.certificate),
        "counts": asdict(result.counts),
        **{name: getattr(result, name) for name in ("fun", "message", "nit", "seconds", "method")},
        **{name: getattr(result, name) for name in TRAFFIC},
    }
    arrays = {f"x{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    arrays |= {f"trace_{name}": as_numbers(result.trace[name]) for name in COLUMNS}
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, header=np.array(json.dumps(header)), **arrays)


def load(path: str | Path) -> Result:
    """Read a result that `save` wrote; ValueError for any other file."""
    try:
        with open(regular_file("load", path), "rb") as raw, np.load(raw, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("version") != VERSION:
                raise ValueError("its header is not that of a tercet result of version 1")
            arrays = {name: file[name] for name in file.files}
        return Result(
            x=put_together(header["x"], arrays),
            status=Status[header["status"]],
            certificate=certificate_from(header["certificate"]),
            counts=Counts(**header["counts"]),
            trace=Trace(tuple(rows(arrays, header["counts"]["n"]))),
            **{name: header[name] for name in ("fun", "message", "nit", "seconds", "method")},
            **{name: header.get(name, 0) for name in TRAFFIC},
        )
    except FileNotFoundError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"load({str(path)!r}): not a saved tercet result ({error}).") from error


def certificate_from(saved: dict[str, Any]) -> Certificate:
    """A certificate from its fields; files of earlier versions have fewer, and asked for chi_i <= eps_i."""
    sampling = saved.get("sampling")
    vectors = ("error_x", "bound_x", "involved", "way_down", "ray", "active", "weak", "multipliers")
    parts: dict[str, Any] = {name: tuple(saved[name]) for name in vectors if saved.get(name) is not None}
    kernel = tuple(tuple(v) for v in saved.get("kernel", ()))
    converged = saved.get("converged", saved["chi1"] <= saved["eps1"])
    whole = {**saved, **parts, "kernel": kernel, "converged": converged}
    return Certificate(**{**whole, "sampling": None if sampling is None else Sampling(**sampling)})


def take_apart(tree: Any, leaves: list[Any]) -> Any:
    """The structure of x as JSON, its arrays appended to `leaves`."""
    if isinstance(tree, dict):
        return {"dict": [[key, take_apart(value, leaves)] for key, value in tree.items()]}
    if isinstance(tree, list | tuple):
        return {"list" if isinstance(tree, list) else "tuple": [take_apart(value, leaves) for value in tree]}
    leaves.append(tree.cpu() if hasattr(tree, "cpu") else tree)  # a PyTorch tensor may lie on another device
    return {"leaf": len(leaves) - 1}


def put_together(node: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """x again."""
    if "leaf" in node:
        return arrays[f"x{int(node['leaf'])}"]
    if "dict" in node:
        return {key: put_together(value, arrays) for key, value in node["dict"]}
    kind = "list" if "list" in node else "tuple"
    parts = [put_together(value, arrays) for value in node[kind]]
    return parts if kind == "list" else tuple(parts)


def as_numbers(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A column without objects: None becomes nan."""
    return np.array([np.nan if v is None else float(v) for v in column]) if column.dtype == object else column


WHOLE = {"iteration", "inner", "escape", *ORDERS, *(f"size_{part}" for part in ORDERS)}
TABLE = np.dtype([(name, np.int64 if name in WHOLE else np.float64) for name in COLUMNS])


def table_of_rows(iterations: Sequence[Row]) -> np.ndarray[Any, Any]:
    """Some iterations as one array of records; None is nan."""
    cells = (row.as_dict().values() for row in iterations)
    return np.array([tuple(np.nan if cell is None else cell for cell in line) for line in cells], dtype=TABLE)


def rows_from_table(table: np.ndarray[Any, Any], n: int) -> list[Row]:
    """The iterations again."""
    if table.dtype != TABLE:
        raise ValueError("its trace has other columns")
    return rows({f"trace_{name}": table[name] for name in COLUMNS}, n)


def rows(arrays: dict[str, Any], n: int) -> list[Row]:
    """The iterations of the trace again."""
    blank = np.full(len(arrays["trace_iteration"]), np.nan)
    columns = {
        name: arrays.get(f"trace_{name}", blank) if name in LATER else arrays[f"trace_{name}"] for name in COLUMNS
    }
    plain = {field.name for field in fields(Row)} & set(COLUMNS) - {"third_bought", "accepted"}
    out = []
    for i in range(len(columns["iteration"])):
        cell = {name: columns[name][i].item() for name in COLUMNS}
        met, sure = (three_flags(cell, name) for name in ("meets", "guaranteed"))
        out.append(
            Row(
                **{name: cell[name] for name in plain},
                sizes=Sizes(*(int(cell[f"size_{part}"]) for part in ORDERS)),
                third_bought=bool(cell["third_bought"]),
                accepted=bool(cell["accepted"]),
                meets=met,
                guaranteed=sure,
                counts=Counts(**{part: int(cell[part]) for part in ORDERS}, n=n),
            )
        )
    return out


def three_flags(cell: dict[str, Any], name: str) -> Meets:
    """name_1, name_2, name_3 as truth values; nan is None."""
    flags = (cell[f"{name}_{k}"] for k in (1, 2, 3))
    first, second, third = (None if flag != flag else bool(flag) for flag in flags)
    return first, second, third
