"""What a decision of the controller is: the records to write and the answer once they are."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from lakelog.metadata.records import Record

T = TypeVar("T")


class Plan(NamedTuple, Generic[T]):
    """All records are committed together, before anybody sees `result`."""

    records: tuple[Record, ...]
    result: T
