"""Declared messages that cover each type of field, for tests of codecs."""

from __future__ import annotations

from typing import Any

from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    error_text,
    float64,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class Item(Struct):
    name: str = string()
    size: int = int32("1+", default=7)


class Cargo(Message, versions="0-3", flexible="2+"):
    count: int = int16()
    owner: str | None = string(nullable="1+", default=None)
    items: list[Item] | None = array(Item, nullable="1+")
    ids: list[int] = array(int64)
    blob: Any = binary("1+", nullable="2+")
    batch: Any = records(nullable="0+")
    note: str = string("2+", tag=1, default="none")
    best: Item = struct(Item, "3+", tag=0)


class Numbers(Message, versions="0", flexible="0+"):
    small: int = uint16()
    large: int = uint32()
    real: float = float64()
    flag: bool = boolean()
    key: bytes = uuid()


class Choice(Message, versions="0-1", flexible="1+"):
    left: Item | None = struct(Item, nullable="0+", default=None)
    right: Item | None = struct(Item, nullable="0+", tag=0, default=None)


class Failure(Message, versions="0-1", flexible="1+"):
    text: str | None = error_text()


class Names(Message, versions="0-1", flexible="1+"):
    names: list[str] = array(string)


FULL = Cargo(
    count=-2,
    owner="ö",
    items=[Item(name="a", size=1), Item(name="")],
    ids=[1, -1],
    blob=b"xy",
    batch=b"zzz",
    note="n",
    best=Item(name="b"),
)
