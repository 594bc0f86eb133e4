"""`tercet shard`, and what the other commands do with its folders."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from tercet.datasets.convert import SHARD, shard_file
from tercet.objectives.linear import LinearModel
from tercet.shards import Shards
from tercet.shards.layout import Layout

PAUSE = 0.2  # seconds between two lines of progress


def add_shard(commands: Any) -> None:
    """The arguments of shard."""
    shard = commands.add_parser("shard", help="cut a file into a folder of shards, for data larger than memory")
    shard.add_argument("file", help="LIBSVM text (plain, gz, bz2, xz), CSV with a line of names, or Parquet")
    shard.add_argument("folder", type=Path, help="a folder that is empty or new")
    shard.add_argument("--target", help="the column of the targets, of CSV and Parquet")
    shard.add_argument("--weights", help="the column of the rows' weights, of CSV and Parquet")
    shard.add_argument("--n-features", type=int, help="columns of LIBSVM text; without it as many as its largest index")
    shard.add_argument("--shard-mb", type=float, default=SHARD / 2**20, help="megabytes of a shard")
    shard.add_argument("--keep-labels", action="store_true", help="leave two labels as they are, instead of 0 and 1")
    shard.add_argument("--json", action="store_true", help="one JSON object instead of a line")
    shard.set_defaults(command=command_shard)


def command_shard(options: argparse.Namespace) -> int:
    """Read, cut, write."""
    started = perf_counter()
    manifest = shard_file(
        options.file,
        options.folder,
        target=options.target,
        weights=options.weights,
        n_features=options.n_features,
        shard_bytes=int(options.shard_mb * 2**20),
        keep_labels=options.keep_labels,
        progress=Bar.on_terminal(),
    )
    extents = [entry.extent for entry in manifest.entries]
    rows, size = sum(extent.rows for extent in extents), sum(extent.bytes for extent in extents)
    told = {
        "folder": str(options.folder),
        "shards": len(extents),
        "rows": rows,
        "columns": extents[0].columns,
        "bytes": size,
        "labels": manifest.labels,
        "seconds": perf_counter() - started,
    }
    if options.json:
        print(json.dumps(told))
    else:
        many = "1 shard" if len(extents) == 1 else f"{len(extents)} shards"
        map_of = "" if manifest.labels is None else f", labels {manifest.labels}"
        print(f"{many} of {rows} x {extents[0].columns}, {size / 1e9:.3g} GB, in {options.folder}{map_of}")
    return 0


class Bar:
    """A line on the terminal while a file is read."""

    def __init__(self) -> None:
        self.started = self.shown = perf_counter()

    @staticmethod
    def on_terminal() -> Bar | None:
        """One that writes to standard error, where that is a terminal."""
        return Bar() if sys.stderr.isatty() else None

    def __call__(self, share: float, rows: int) -> None:
        """Write over the line, if it is time."""
        now = perf_counter()
        if now < self.shown + PAUSE:
            return
        self.shown = now
        full = int(30 * share)
        left = (now - self.started) * (1 - share) / max(share, 1e-9)
        text = f"[{'#' * full}{'.' * (30 - full)}] {100 * share:3.0f} %  {rows:,} rows  {left:.0f} s left"
        sys.stderr.write("\r\x1b[2K" + text)
        sys.stderr.flush()


def folder_model(
    folder: str, settings: dict[str, Any], address: str | None
) -> tuple[Any, Layout, dict[str, int] | None]:
    """The model over a folder of shards, in this process or on a Dask cluster; its layout and the map of its labels."""
    shards = Shards(folder)
    if address is None:
        return LinearModel(shards, **settings), shards.layout, shards.labels
    import tercet.dask

    client = tercet.dask.connect(address)
    return tercet.dask.LinearModel(shards, client=client, **settings), shards.layout, shards.labels
