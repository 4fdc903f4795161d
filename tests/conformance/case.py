"""A bad request, and the comparison of two brokers' responses to it.

A case names its API; the cases of an API that is not in the registry are left out, so rows can be
written before the API is served. Builders import message classes of such APIs themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode
from lakelog.wire.schema import Struct


@dataclass(slots=True)
class World:
    """The state prepared on a broker; the same on both, except for ids."""

    node: int
    topic: str
    """Two partitions; three records in partition 0."""
    topic_id: bytes
    compacted: str
    """One partition, cleanup.policy=compact."""
    group: str
    """Stable, with one dynamic member."""
    member: str
    generation: int
    static_group: str
    """Stable, with one member whose instance id is `instance`."""
    static_member: str
    instance: str
    empty_group: str
    """No members; an offset committed for partition 0 of `topic`."""
    producer_id: int
    transaction: tuple[int, int]
    """Producer id and epoch of transactional id `conformance-transaction`; nothing is open."""
    consumer_member: tuple[str, int]
    """Member id and epoch of the only member of `conformance-consumer` (KIP-848)."""


class Difference(NamedTuple):
    """Outcomes that differ on purpose, as `outcome` writes them."""

    ours: str
    kafka: str
    why: str


class Case(NamedTuple):
    """`versions` is the range it makes sense in; both brokers' ranges bound it further.

    `needs` is a second API that must be served for the case to have a meaning.
    """

    api: str
    name: str
    build: Callable[[World], Any]
    versions: tuple[int, int] = (0, 99)
    differs: Difference | None = None
    needs: str = ""

    @property
    def id(self) -> str:
        return f"{self.api}: {self.name}"


def made(module: str, name: str, /, **fields: Any) -> Any:
    """Return a message or struct of a family of APIs, by its name."""
    return getattr(import_module(f"lakelog.protocol.{module}"), name)(**fields)


def outcome(response: Any) -> str:
    """The names of all error codes of a response, each once, in alphabetical order."""
    return " ".join(sorted({ErrorCode(code).name for code in _codes(response)})) or "nothing"


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for item in value:
            yield from _codes(item)
    elif isinstance(value, Struct):
        for field in value.__fields__:
            inner = getattr(value, field.name)
            if field.name.endswith("error_code"):
                yield inner
            else:
                yield from _codes(inner)
