"""`once`: an attribute that is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Self = TypeVar("Self")


class once(Generic[T]):  # noqa: N801 (a decorator, in the place of `property`)
    """Like `functools.cached_property`, also on frozen records, without the lock that Python 3.11 takes."""

    def __init__(self, compute: Callable[[Any], T]):
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, record: None, kind: type) -> once[T]: ...

    @overload
    def __get__(self, record: object, kind: type) -> T: ...

    def __get__(self, record: object | None, kind: type) -> once[T] | T:
        if record is None:
            return self
        value = self.compute(record)
        remember(record, self.name, value)  # from now on found before this descriptor
        return value


def remember(record: object, name: str, value: Any) -> None:
    """What the `once` of that name is, where something else told it on the way."""
    object.__setattr__(record, name, value)


def known(record: object, name: str) -> bool:
    """Whether the `once` of that name was asked for."""
    return name in vars(record)
