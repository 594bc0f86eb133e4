"""What the examples share: their command line, their tables, and the looks of their pictures."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

# The palette of Okabe and Ito, which readers with any kind of color vision tell apart.
BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
GRAY, BLACK = "#7F7F7F", "#000000"


def run(main: Callable[[bool, Path], dict[str, Any]], description: str | None) -> None:
    """Read --quick and --out, and run an example."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, some seconds")
    parser.add_argument("--out", type=Path, default=Path("."), help="the folder for the picture (default: this one)")
    arguments = parser.parse_args()
    main(arguments.quick, arguments.out)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print rows under a head, the first column to the left and the others to the right."""
    lines = [tuple(head), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for k, line in enumerate(lines):
        cells = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *cells]).rstrip())
        if k == 0:
            print("  ".join("-" * width for width in widths))
    print(flush=True)


def panels(count: int, width: float = 4.8, height: float = 3.8) -> tuple[Figure, list[Any]]:
    """A figure with `count` panels side by side, without the frame's upper and right lines."""
    figure = Figure(figsize=(width * count, height), layout="constrained")  # without pyplot: no window, no state
    axes = [figure.add_subplot(1, count, k + 1) for k in range(count)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> Path:
    """Write the picture, making its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    print(f"picture: {path}", flush=True)
    return path
