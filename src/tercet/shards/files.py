"""From patterns to pairs of files: X-007.npy belongs to y-007.npy, and nothing is guessed."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import Any

WILD = {"**": ".*", "*": ".*", "?": "."}  # and [...] as it is


def is_pattern(value: Any) -> bool:
    """A path or a pattern, or a list of such."""
    if isinstance(value, list | tuple):
        return bool(value) and all(is_pattern(part) for part in value)
    return isinstance(value, str | os.PathLike)


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key by which 2 comes before 10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def found(name: str, pattern: Any) -> list[str]:
    """The files of a pattern, by their numbers, or those of a list as given; ValueError where there are none."""
    if isinstance(pattern, list | tuple):
        files = [os.fspath(path) for path in pattern]
        absent = [path for path in files if not Path(path).is_file()]
        if absent:
            raise ValueError(f"Shards({name}=...): {absent[0]!r} is not there.")
    else:
        files = sorted(glob.glob(os.fspath(pattern)), key=natural)
        if not files:
            raise ValueError(f"Shards({name}={os.fspath(pattern)!r}): no file matches; give a pattern like 'X-*.npy'.")
    twice = {path for path in files if files.count(path) > 1} if len(set(files)) < len(files) else set()
    if twice:
        raise ValueError(f"Shards({name}=...): {min(twice)!r} appears twice; name every file once.")
    return files


def stem(pattern: str, path: str) -> str:
    """What the wildcards of a pattern stand for in a path."""
    parts = re.split(r"(\*\*|\*|\?|\[[^\]]+\])", pattern)
    where = "".join(re.escape(part) if k % 2 == 0 else f"({WILD.get(part, part)})" for k, part in enumerate(parts))
    match = re.fullmatch(where, path)
    return "/".join(match.groups()) if match else path


def paired(X: Any, other: Any, name: str) -> tuple[list[str], list[str]]:
    """The files of X and those of y or of the weights, one for each.

    Where both are patterns, what their wildcards stand for has to be the same; lists are paired by their order.
    """
    left, right = found("X", X), found(name, other)
    both = set(left) & set(right)
    if both:
        raise ValueError(f"Shards(X=..., {name}=...): {min(both)!r} matches both; the patterns overlap, narrow them.")
    if not isinstance(X, list | tuple) and not isinstance(other, list | tuple):
        mine = {stem(os.fspath(X), path): path for path in left}
        theirs = {stem(os.fspath(other), path): path for path in right}
        if mine.keys() != theirs.keys() and len(mine) == len(left) and len(theirs) == len(right):
            lost = sorted(mine.keys() ^ theirs.keys(), key=natural)[0]
            has, lacks = ("X", name) if lost in mine else (name, "X")
            raise ValueError(
                f"Shards(X=..., {name}=...): {has} has {(mine | theirs)[lost]!r}, but {lacks} has no file for {lost!r}."
            )
        return left, [theirs[stem(os.fspath(X), path)] for path in left]
    if len(left) != len(right):
        raise ValueError(f"Shards(X=..., {name}=...): {len(left)} files of X and {len(right)} of {name}; pair them.")
    return left, right
