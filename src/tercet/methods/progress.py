"""A line on the terminal while a run takes long; nothing where there is no terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TextIO

from tercet.result import Row


@dataclass(eq=False)
class Progress:
    """Shows the last iteration after `patience` seconds and then every `pause` seconds."""

    n: int
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    patience: float = 1.0
    pause: float = 0.2
    shown: float = 0.0

    @staticmethod
    def on_terminal(n: int) -> Progress | None:
        """One that writes to standard error, where that is a terminal."""
        try:
            shows = sys.stderr.isatty()
        except (AttributeError, ValueError):  # there is none, or a stand-in for one, or it is closed
            shows = False
        return Progress(n) if shows else None

    def show(self, row: Row) -> None:
        """Write over the line, if it is time."""
        if row.seconds < self.patience or row.seconds < self.shown + self.pause:
            return
        self.shown = row.seconds
        text = (
            f"iteration {row.iteration}  f {row.f:.8g}  gap about {row.predicted:.1e}  |g| {row.gradient_norm:.1e}  "
            f"sigma {row.sigma:.1e}  "
            f"terms {row.sizes.gradient}/{self.n}  epochs {row.counts.epochs:.1f}  {row.seconds:.0f} s"
        )
        self.stream.write("\r\x1b[2K" + text)
        self.stream.flush()

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self.shown:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
