"""Runs pages and writes what they print, and their pictures, into them: `python docs/execute.py docs/verdicts.md ...`.

A page is Markdown; its Python blocks run from its top, in one namespace. A fence of `text` right after a block is what
the block prints, and a picture right after that is the `figure` that the block made. Without arguments all pages that
have such places are run. The tests run them, too, and compare what is printed but for the digits.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?(?:\n!\[[^\]]*\]\((?P<picture>[^)]*\.png)\)\n)?",
    re.DOTALL | re.MULTILINE,
)


def pages() -> list[Path]:
    """The pages that show what their blocks print."""
    return [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts and shows(path)]


def shows(path: Path) -> bool:
    """Whether a page has output to be written."""
    return any(m["output"] is not None for m in BLOCK.finditer(path.read_text(encoding="utf-8")))


def run(path: Path) -> Iterator[tuple[re.Match[str], str, Any]]:
    """Each block with what it prints and the figure it made, run in an empty folder."""
    names: dict[str, Any] = {"__name__": "page"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for k, match in enumerate(BLOCK.finditer(path.read_text(encoding="utf-8"))):
                names.pop("figure", None)
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(match["code"], f"{path.name}, block {k + 1}", "exec"), names)
                yield match, out.getvalue(), names.get("figure")
        finally:
            os.chdir(before)


def skeleton(text: str) -> str:
    """What is printed but for numbers, spaces and rules, which depend on the machine's last digits."""
    return re.sub(r"[\s-]+", " ", re.sub(r"[-+]?(\d[\d.]*(e[-+]?\d+)?|\binf\b|\bnan\b)", "#", text)).strip()


def write(path: Path) -> None:
    """The page with the output of its blocks, and its pictures."""
    text, at, parts = path.read_text(encoding="utf-8"), 0, []
    for match, output, figure in run(path):
        if match["output"] is not None:
            parts += [text[at : match.start("output")], output.rstrip("\n") + "\n"]
            at = match.end("output")
        if match["picture"] is not None and figure is not None:
            target = path.parent / match["picture"]
            target.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(target, dpi=110, metadata={"Software": None})
    path.write_text("".join([*parts, text[at:]]), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        write(page)
