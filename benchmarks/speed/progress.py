"""A line on the terminal while the benchmark runs; nothing where there is no terminal."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO


@dataclass(eq=False)
class Progress:
    """Writes over one line of standard error."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    started: float = field(default_factory=time.perf_counter)
    title: str = ""

    def begin(self, title: str) -> None:
        """What the next lines belong to."""
        self.title = title

    def show(self, text: str) -> None:
        """The title, where it stands, and the time since the begin."""
        if self.stream.isatty():
            passed = int(time.perf_counter() - self.started)
            self.stream.write(f"\r\x1b[2K{passed // 60:02d}:{passed % 60:02d}  {self.title}  {text}")
            self.stream.flush()

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
