"""A formula of losses.py written down as lines of a program, so that it can be one kernel in another language.

The formula is called once, with numbers that note each operation instead of doing it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tercet.objectives.device.losses import Part


@dataclass(frozen=True)
class Language:
    """How a value is named and a function is called; `v` stands for the argument."""

    line: str  # {name} = {value}
    calls: dict[str, str]


TRITON = Language(
    "    {name} = {value}\n",
    {
        "exp": "tl.exp({v})",
        "expm1": "libdevice.expm1({v})",
        "log1p": "libdevice.log1p({v})",
        "abs": "tl.abs({v})",
        "ones_like": "tl.full({v}.shape, 1.0, {v}.dtype)",
        "zeros_like": "tl.full({v}.shape, 0.0, {v}.dtype)",
    },
)
CUDA = Language(
    "T {name} = {value};\n",
    {
        "exp": "exp({v})",
        "expm1": "expm1({v})",
        "log1p": "log1p({v})",
        "abs": "fabs({v})",
        "ones_like": "T(1)",
        "zeros_like": "T(0)",
    },
)


@dataclass(eq=False)
class Writer:
    """In place of an array library: what is called becomes a line."""

    language: Language
    text: str = ""
    count: int = 0

    @property
    def xp(self) -> Writer:
        """The namespace of its functions."""
        return self

    def note(self, value: str) -> Number:
        """A new name for a value."""
        name, self.count = f"v{self.count}", self.count + 1
        self.text += self.language.line.format(name=name, value=value)
        return Number(self, name)

    def expit(self, v: Number) -> Number:
        """1 / (1 + exp(-v))."""
        return 1.0 / (1.0 + self.exp(-v))

    def __getattr__(self, name: str) -> Callable[[Number], Number]:
        call = self.language.calls.get(name)
        if call is None:
            raise AttributeError(name)
        return lambda v: self.note(call.format(v=v.name))


@dataclass(frozen=True, eq=False)
class Number:
    """A name in the program that is being written."""

    writer: Writer = field(repr=False)
    name: str

    def __add__(self, other: Number | float) -> Number:
        return self.writer.note(f"{self.name} + {text_of(other)}")

    def __radd__(self, other: float) -> Number:
        return self.writer.note(f"{text_of(other)} + {self.name}")

    def __sub__(self, other: Number | float) -> Number:
        return self.writer.note(f"{self.name} - {text_of(other)}")

    def __rsub__(self, other: float) -> Number:
        return self.writer.note(f"{text_of(other)} - {self.name}")

    def __mul__(self, other: Number | float) -> Number:
        return self.writer.note(f"{self.name} * {text_of(other)}")

    def __rmul__(self, other: float) -> Number:
        return self.writer.note(f"{text_of(other)} * {self.name}")

    def __truediv__(self, other: Number | float) -> Number:
        return self.writer.note(f"{self.name} / {text_of(other)}")

    def __rtruediv__(self, other: float) -> Number:
        return self.writer.note(f"{text_of(other)} / {self.name}")

    def __neg__(self) -> Number:
        return self.writer.note(f"-{self.name}")


def text_of(value: Number | float) -> str:
    """A name, or a constant with all of its digits."""
    return value.name if isinstance(value, Number) else repr(float(value))


def written(part: Part, order: int, language: Language) -> tuple[str, str]:
    """The lines that make l^(order) of `z` and `y`, and the name of what they end with."""
    writer: Any = Writer(language)
    last = part(writer, order, Number(writer, "z"), Number(writer, "y"))
    return writer.text, last.name
