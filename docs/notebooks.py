"""Writes the pages of the gallery as Jupyter notebooks: `python docs/notebooks.py`, after `docs/execute.py`.

A notebook is made of the page alone: its text, its blocks, what they print and the pictures that they draw, as they
stand there. Nothing of Jupyter is needed for that, nor to run one: `run` does it cell by cell in one namespace, as the
tests do.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import execute

GALLERY = execute.DOCS / "gallery"
SHOWN = "figure"  # the last line of a cell that draws: Jupyter shows what it evaluates to
INLINE = "%matplotlib inline"  # so that it does, also for figures that were not made by pyplot


def pages() -> list[Path]:
    """Those that have a notebook."""
    return [path for path in sorted(GALLERY.glob("*.md")) if execute.shows(path)]


def target(page: Path) -> Path:
    """Where the notebook of a page lies."""
    return execute.DOCS / "_static" / "gallery" / f"{page.stem}.ipynb"


def notebook(page: Path) -> dict[str, Any]:
    """A page as a notebook of format 4."""
    text, at = page.read_text(encoding="utf-8"), 0
    cells: list[dict[str, Any]] = []
    for match in execute.BLOCK.finditer(text):
        cells += prose(text[at : match.start()])
        if at == 0 and "matplotlib" in text:
            cells.append(code_cell(INLINE, None, None))
        picture = match["picture"] and (page.parent / match["picture"]).read_bytes()
        cells.append(code_cell(match["code"].rstrip("\n"), match["output"], picture))
        at = match.end()
    cells += prose(text[at:])
    language = {"name": "python"}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": language},
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def prose(text: str) -> list[dict[str, Any]]:
    """Text between two blocks, if there is any. Links to other pages lead nowhere from a file of its own."""
    alone = re.sub(r"^\[.*\.ipynb\)\.$", "", text, flags=re.MULTILINE)
    plain = re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", alone).strip("\n")
    return [{"cell_type": "markdown", "metadata": {}, "source": lines(plain)}] if plain else []


def code_cell(code: str, output: str | None, picture: bytes | None) -> dict[str, Any]:
    """A block with what it printed and drew."""
    outputs: list[dict[str, Any]] = []
    if output is not None:
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines(output)})
    if picture is not None:
        code += f"\n{SHOWN}"
        data = {"image/png": base64.b64encode(picture).decode()}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": outputs, "source": lines(code)}


def lines(text: str) -> list[str]:
    """As notebooks keep it."""
    return text.splitlines(keepends=True)


def dump(page: Path) -> str:
    """The file of a notebook."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


def run(path: Path) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Each code cell of a notebook with what it prints and what its last line is, in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for k, cell in enumerate(cells):
            if cell["cell_type"] != "code" or cell["source"] == [INLINE]:
                continue
            code = "".join(cell["source"])
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, f"{path.name}, cell {k + 1}", "exec"), names)
            shown = names[SHOWN] if code.endswith(f"\n{SHOWN}") else None
            yield cell, out.getvalue(), shown


if __name__ == "__main__":
    for each in pages():
        target(each).write_text(dump(each), encoding="utf-8")
        print(os.path.relpath(target(each)))
