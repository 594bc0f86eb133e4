"""The plain text of a file, which may be packed with gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

BLOCK = 1 << 22  # bytes of text that are taken at once
XZ_MEMORY = 1 << 29  # bytes that the dictionary of an xz archive may take


@dataclass
class Where:
    """The file and the line that is read now."""

    name: str
    line: int = 1

    def error(self, text: str) -> ValueError:
        """The refusal of this line."""
        return ValueError(f"{self.name}:{self.line}: {text}.")


def chunks_of(file: Any, where: Where) -> Iterator[bytes]:
    """The bytes of a file as it gives them; text is taken as UTF-8."""
    while chunk := _read(file, where):
        yield chunk.encode("utf-8", "backslashreplace") if isinstance(chunk, str) else chunk


def _read(file: Any, where: Where) -> bytes | str:
    """The next part of an open file, empty at its end."""
    try:
        chunk = file.read(BLOCK)
    except UnicodeDecodeError as error:
        raise where.error(f"found bytes that are no text ({error}), expected text or a binary file object") from error
    if not isinstance(chunk, bytes | str):
        raise TypeError(f"load_libsvm({where.name}): read() gave {type(chunk).__name__}, expected bytes or str.")
    return chunk


class _Unpacker(Protocol):
    """What bz2 and lzma offer for one stream of an archive, and _Gzip for gzip."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """One gzip stream, checksum included, in the manner of bz2 and lzma."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


ARCHIVES: list[tuple[bytes, str, Callable[[], _Unpacker]]] = [
    (b"\x1f\x8b", "gzip", _Gzip),
    (b"BZh", "bzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)),
]


def unpacked(chunks: Iterator[bytes], where: Where) -> Iterator[bytes]:
    """The plain text of the chunks, unpacked where they begin as an archive does."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= 6:
            break
    for magic, kind, make in ARCHIVES:
        if first.startswith(magic):
            yield from _streams(first, chunks, kind, make, where)
            return
    yield first
    yield from chunks


def _streams(
    data: bytes, chunks: Iterator[bytes], kind: str, make: Callable[[], _Unpacker], where: Where
) -> Iterator[bytes]:
    """The text of all streams of an archive, one after the other, in pieces of at most a block."""
    stream = make()
    while True:
        try:
            text = stream.decompress(data, BLOCK)
        except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise where.error(f"found damaged {kind} data ({error}), expected an intact {kind} archive") from error
        if text:
            yield text
        data = b""
        if stream.eof:
            # archives may be padded with zero bytes between their streams and at their end
            data = stream.unused_data.lstrip(b"\0")
            while not data:
                if (chunk := next(chunks, None)) is None:
                    return
                data = chunk.lstrip(b"\0")
            stream = make()
        elif stream.needs_input and not text:
            if (chunk := next(chunks, None)) is None:
                raise where.error(f"found the end of a truncated {kind} archive, expected more data")
            data = chunk
