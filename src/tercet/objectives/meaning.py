"""What a function does, told by what it is made of: its code, and all that the code refers to, by value.

Two functions with the same `meaning` are traced once. Nothing is guessed: where a function refers to something that may
have changed without being seen (an object with fields, a random generator, what is looked up by a name that is only
known when it runs), it has no meaning here, and is traced at every call.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import sys
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

LIBRARIES = ("jax", "jaxlib", "numpy", "math", "operator")  # what they hold stays the same
CHANGING = ("random",)  # but for these parts of them
HIDDEN = {"getattr", "eval", "exec", "globals", "locals", "vars", "open", "input", "next", "iter", "id", "__import__"}
NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(...), np.generic, np.dtype)
READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
PARTS = {"LOAD_ATTR", "LOAD_METHOD"}
WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM", "STORE_ATTR", "DELETE_ATTR"}
DEEPEST = 20  # functions that refer to functions

Names = tuple[frozenset[str], frozenset[str]]


class UntoldError(Exception):
    """There is something of which the value is not known."""


def meaning(*things: Any) -> Any:
    """A key that is the same only for functions, and other values, that mean the same; None where that is not told."""
    try:
        return tuple(told(each, frozenset(), 0) for each in things)
    except UntoldError:
        return None


def told(value: Any, parts: frozenset[str], depth: int) -> Any:
    """The meaning of one value, of which the code takes parts of these names."""
    if depth > DEEPEST:
        raise UntoldError
    kind = type(value)
    if isinstance(value, NUMBERS):
        return kind, value, str(value)  # 0.0 is not -0.0, and nan is itself
    if kind is np.ndarray or is_jax_array(value):
        return of_array(np.asarray(value))
    if kind in (tuple, list):
        return kind, tuple(told(each, parts, depth + 1) for each in value)
    if kind is dict:
        return kind, tuple((told(k, parts, depth + 1), told(v, parts, depth + 1)) for k, v in value.items())
    if kind is functools.partial:
        return kind, told((value.func, value.args, value.keywords), parts, depth + 1)
    if kind is types.ModuleType:
        return of_module(value, parts, depth)
    if from_library(value):
        return Same(value)
    if kind is types.FunctionType:
        return of_function(value, depth)
    meant = getattr(kind, "means", None)  # of a class of our own, which says what it is made of
    if meant is not None and kind.__module__.startswith("tercet."):
        return kind, told(tuple(getattr(value, name) for name in meant), parts, depth + 1)
    raise UntoldError


class Same:
    """An object that is equal to itself alone, and that is kept, so that its place is not given to another."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


def is_jax_array(value: Any) -> bool:
    """Whether it is an array of JAX that holds numbers, which cannot be written to."""
    return type(value).__module__.startswith("jaxlib.") and type(value).__name__ == "ArrayImpl"


def of_array(array: np.ndarray[Any, Any]) -> Any:
    """Shape and entries."""
    if array.dtype.hasobject:
        raise UntoldError
    return np.ndarray, str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).digest()


def from_library(value: Any) -> bool:
    """Whether it is a function, or a type, of one of the libraries; what the user jitted is JAX's, which holds it to be
    pure."""
    if isinstance(value, np.ufunc) or type(value).__name__ == "PjitFunction":
        return True
    home, name = str(getattr(value, "__module__", "")), str(getattr(value, "__name__", ""))
    if isinstance(value, types.BuiltinFunctionType) and value.__self__ is builtins:
        return name not in HIDDEN
    if value is getattr(builtins, name, None):
        return True
    return trusted(home) and value is getattr(sys.modules.get(home), name, None)


def trusted(home: str) -> bool:
    """Whether a module is part of a library, and not of what changes in it."""
    root, *rest = home.split(".")
    return root in LIBRARIES and (root.startswith("jax") or not any(part in rest for part in CHANGING))


def of_module(module: types.ModuleType, parts: frozenset[str], depth: int) -> Any:
    """A library, or of another module what the code may take of it."""
    if module.__name__.split(".")[0] in LIBRARIES:
        taken = not module.__name__.startswith("jax") and bool(parts.intersection(CHANGING))
        if taken or not trusted(module.__name__):
            raise UntoldError
        return module.__name__
    inside = sorted(name for name in parts if hasattr(module, name))
    return module.__name__, tuple((name, told(getattr(module, name), parts, depth + 1)) for name in inside)


def of_function(function: types.FunctionType, depth: int) -> Any:
    """Its code, defaults, what it closes over, and the globals that it reads."""
    code = function.__code__
    reads, parts = names_of(code)
    cells = []
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError as error:  # not filled yet
            raise UntoldError from error
        cells.append("itself" if inner is function else told(inner, parts, depth + 1))
    found = []
    for name in sorted(reads):
        if name in function.__globals__:
            value = function.__globals__[name]
            found.append((name, "itself" if value is function else told(value, parts, depth + 1)))
        elif name in HIDDEN or not hasattr(builtins, name):
            raise UntoldError
    defaults = told((function.__defaults__, function.__kwdefaults__), parts, depth + 1)
    return code, defaults, tuple(cells), tuple(found)


@functools.lru_cache(maxsize=1024)
def looked_up(code: types.CodeType) -> Names | None:
    """The globals that code reads, that in it too, and the names of the parts that it takes; None where it changes or
    imports something."""
    reads, parts = set[str](), set[str]()
    for line in dis.get_instructions(code):
        if line.opname in WRITES:
            return None
        if line.opname in READS:
            reads.add(line.argval)
        elif line.opname in PARTS:
            parts.add(line.argval)
    return union([(frozenset(reads), frozenset(parts)), *map(looked_up, nested(code))])


def nested(code: types.CodeType) -> list[types.CodeType]:
    """The code of functions within."""
    return [each for each in code.co_consts if isinstance(each, types.CodeType)]


def union(all_of: Iterable[Names | None]) -> Names | None:
    """The names of several; None where one is."""
    some = list(all_of)
    known = [each for each in some if each is not None]
    if len(known) < len(some):
        return None
    return frozenset().union(*(reads for reads, _ in known)), frozenset().union(*(parts for _, parts in known))


def names_of(code: types.CodeType) -> Names:
    """The same, or an UntoldError."""
    found = looked_up(code)
    if found is None:
        raise UntoldError
    return found
