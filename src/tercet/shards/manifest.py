"""The manifest of a folder of shards: what is there, of which shape, and digests by which it is known again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from tercet.shards.layout import Block, Extent

NAME = "manifest.json"
FORMAT, VERSION = "tercet shards", 1


@dataclass(frozen=True)
class Entry:
    """One shard of a manifest: its files, its extent and its digest."""

    X: str
    y: str
    weights: str | None
    extent: Extent
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a folder holds."""

    entries: tuple[Entry, ...]
    labels: dict[str, int] | None = None  # what the two labels of the original are here
    source: str | None = None  # the name of the original

    def write(self, folder: Path) -> Path:
        """As JSON into the folder, whole or not at all."""
        path = folder / NAME
        shards = [{**asdict(entry), "extent": asdict(entry.extent)} for entry in self.entries]
        head = {"format": FORMAT, "version": VERSION, "rows": sum(entry.extent.rows for entry in self.entries)}
        text = json.dumps({**head, "labels": self.labels, "source": self.source, "shards": shards}, indent=1)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_text(text)
        os.replace(temporary, path)
        return path

    def compare(self, i: int, extent: Extent) -> None:
        """ValueError where the files of shard i are not what is written here."""
        told, seen = asdict(self.entries[i].extent), asdict(extent)
        wrong = [name for name in told if told[name] != seen[name]]
        if wrong:
            raise ValueError(
                f"Shards(...): shard {i} ({self.entries[i].X}) has {wrong[0]} {seen[wrong[0]]!r}, but {NAME} says "
                f"{told[wrong[0]]!r}; make the shards again, or write the manifest anew."
            )

    @staticmethod
    def read(path: Path) -> Manifest:
        """ValueError for any other file."""
        try:
            told = json.loads(path.read_text())
            if told["format"] != FORMAT or told["version"] != VERSION:
                raise ValueError("its head is not that of a manifest")
            entries = tuple(
                Entry(s["X"], s["y"], s["weights"], Extent(**s["extent"]), str(s["digest"])) for s in told["shards"]
            )
            if not entries:
                raise ValueError("it names no shard")
            return Manifest(entries, told["labels"], told["source"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"Shards({str(path)!r}): not a manifest that tercet wrote ({error!r}).") from error


@dataclass(eq=False)
class Digester:
    """A digest of the numbers of a shard, as float64, whatever the format in which they lie; tables and targets may
    come at different times, each in order."""

    tables: Any = field(default_factory=hashlib.sha256)
    others: Any = field(default_factory=hashlib.sha256)

    def table(self, X: Any) -> None:
        """More rows of X."""
        for part in (X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)) if sp.issparse(X) else (X,):
            self.tables.update(np.ascontiguousarray(part).data if part.size else b"")

    def targets(self, y: Any, w: Any) -> None:
        """More targets, with their weights."""
        for values in (y, w):
            self.others.update(b"-" if values is None else np.ascontiguousarray(values).data)

    def hexdigest(self) -> str:
        """Of all that came."""
        total = self.tables.copy()
        total.update(self.others.digest())
        return str(total.hexdigest()[:16])


def digest_of(blocks: Iterable[Block]) -> str:
    """A digest of the numbers of a shard."""
    digest = Digester()
    for block in blocks:
        digest.table(block.X)
        digest.targets(block.y, block.w)
    return digest.hexdigest()


def labels_of(labels: dict[Any, int] | None) -> dict[str, int] | None:
    """A map of labels as JSON has it."""
    return None if labels is None else {repr(float(label)): int(value) for label, value in labels.items()}
