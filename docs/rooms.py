"""The plan of rooms, drawn from the imports of the source: `python docs/rooms.py` writes docs/_static/rooms.png."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

import tercet

ROOT = Path(tercet.__file__).parent
OUT = Path(__file__).resolve().parent / "_static"
# room: where it stands, and what lives there
ROOMS = {
    "records": ((0, 3.0), "what travels"),
    "vectors": ((0, 1.0), "length, combine"),
    "objectives": ((1, 3.0), "(x, rows) -> numbers\neverything of size n\nthe meter"),
    "model": ((1, 1.0), "m(s) and its\nderivatives"),
    "sampling": ((3, 4.4), "history -> sizes -> rows"),
    "critical": ((2, 4.6), "x -> certificate,\nthe way down"),
    "subsolvers": ((2, 1.6), "Taylor -> step"),
    "control": ((3, 1.6), "evidence -> decisions:\nsigma, limit, third,\ncurvature, judge"),
    "methods": ((4, 3.0), "step, state, stop,\nthe loop, checkpoints,\nminimize"),
}
NEAR = {"records", "vectors"}  # imported by every room; their arrows would hide the others


def imports(path: Path) -> Iterator[str]:
    """The rooms that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tercet."):
            yield (node.module or "").split(".")[1]


def arrows() -> set[tuple[str, str]]:
    """(who imports, from whom), between rooms."""
    found = set()
    for room in ROOMS:
        files = (ROOT / room).rglob("*.py") if (ROOT / room).is_dir() else [ROOT / f"{room}.py"]
        found |= {(room, other) for path in files for other in imports(path) if other in ROOMS and other != room}
    return found


def draw(ax: Axes) -> None:
    """Boxes, and an arrow from each room to those that it imports from."""
    width, height = 0.78, 1.25
    for room, ((column, y), text) in ROOMS.items():
        corner, style = (column - width / 2, y - height / 2), "round,pad=0.02"
        ax.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, zorder=2, fc="#EAF2F8", ec="#0072B2"))
        ax.text(column, y + 0.33, room, ha="center", va="center", weight="bold", fontsize=10, zorder=3)
        ax.text(column, y - 0.17, text, ha="center", va="center", fontsize=7.5, zorder=3)
    for user, used in sorted(arrows()):
        if used in NEAR:
            continue
        (x0, y0), (x1, y1) = ROOMS[user][0], ROOMS[used][0]
        aside, up = (0.0, height / 2 * (1 if y1 > y0 else -1)) if x0 == x1 else (width / 2 + 0.03, 0.0)
        ends = (x0 - aside, y0 + up), (x1 + aside, y1 - up)
        ax.add_patch(FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=11, color="#7F7F7F", lw=1.0, zorder=1))
    leaves = "experiments, theory, datasets,\nadaptors, command line:\nleaves, imported by no room"
    ax.text(4, 4.5, leaves, ha="center", fontsize=8)
    ax.set_xlim(-0.55, 4.55)
    ax.set_ylim(0.1, 5.6)
    ax.axis("off")


def main() -> None:
    """Draw and write."""
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    draw(figure.subplots())
    figure.savefig(OUT / "rooms.png", dpi=120)


if __name__ == "__main__":
    main()
