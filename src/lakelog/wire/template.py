"""Encodings that are constant except for a few fixed-size fields, the holes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, calcsize
from typing import Any

from lakelog.wire.schema import Buffer


class Template:
    """The constant part of the encodings of one message.

    Args:
        zeros: the encoding with 0 in every hole.
        ones: the encoding with -1 in every hole, of the same length.
        holes: the `struct` characters of the holes, in the order of the wire.
    """

    __slots__ = ("_constants", "_fields", "_layout", "_pack", "_packs", "_unpack_from", "size")

    def __init__(self, zeros: Buffer, ones: Buffer, holes: str) -> None:
        layout, fields = _split(bytes(zeros), bytes(ones), holes)
        struct = Struct(">" + layout)
        self.size = struct.size
        """Size of each encoding in bytes."""
        assert self.size == len(zeros) and len(fields) == 2 * len(holes) + 1
        self._layout = layout
        self._fields: list[Any] = fields
        self._packs: dict[int, Callable[..., bytes]] = {}
        self._constants = tuple(fields[::2])
        self._pack = struct.pack
        self._unpack_from = struct.unpack_from

    def pack(self, *values: int) -> bytes:
        """Return the encoding with `values` in its holes, one for each.

        Raises `struct.error` for a value that is out of its hole's range.
        """
        fields = self._fields[:]
        fields[1::2] = values
        return self._pack(*fields)

    def pack_rows(self, count: int, *columns: Sequence[int]) -> bytes:
        """Return `count` encodings one after the other; each column has the values of one hole.

        Raises `struct.error` as `pack`, and `ValueError` for a column of another length.
        """
        pack = self._packs.get(count)
        if pack is None:
            pack = self._packs[count] = Struct(">" + self._layout * count).pack
        fields, width = self._fields * count, len(self._fields)
        for number, column in enumerate(columns):
            fields[2 * number + 1 :: width] = column
        return pack(*fields)

    def unpack(self, view: Buffer, start: int) -> tuple[Any, ...] | None:
        """Return the values in the holes of the `size` bytes at `start`.

        None if the bytes differ anywhere else. Raises `struct.error` for fewer than `size` bytes.
        """
        fields = self._unpack_from(view, start)
        return fields[1::2] if fields[::2] == self._constants else None


def _split(zeros: bytes, ones: bytes, holes: str) -> tuple[str, list[Any]]:
    """Return a layout in which constants (possibly empty) and holes alternate, and its fields.

    Raises `ValueError` if the encodings differ elsewhere than in the holes.
    """
    size = len(zeros)
    if len(ones) != size:
        raise ValueError(f"encodings of {size} and {len(ones)} bytes")
    # 0 and -1 differ in all bits, so the bytes of a hole, and no others, become 0xff.
    differs = (int.from_bytes(zeros, "big") ^ int.from_bytes(ones, "big")).to_bytes(size, "big")
    layout: list[str] = []
    fields: list[Any] = []
    position = 0
    for hole in holes:
        width = calcsize(">" + hole)
        at = differs.find(b"\xff", position)
        if at < 0 or differs[position : at + width] != bytes(at - position) + b"\xff" * width:
            raise ValueError(f"the encodings do not differ in holes {holes!r}")
        layout += f"{at - position}s", hole
        fields += zeros[position:at], 0
        position = at + width
    if any(differs[position:]):
        raise ValueError(f"the encodings differ in more than {holes!r}")
    return "".join([*layout, f"{size - position}s"]), [*fields, zeros[position:]]
