"""A decision of the controller: the records to write, and the result once they are committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import Record

T = TypeVar("T")


class Plan(NamedTuple, Generic[T]):
    """Records that are committed together, and the result that is returned after that."""

    records: tuple[Record, ...]
    result: T


Planner = Callable[[MetadataImage], Plan[T]]
"""Decides on an image. It may be called again with a newer one, so it has no effect of its own."""
