"""Reading: exact ranges of partitions, and consumer groups.

Each name is imported when it is first used: Spark's workers read ranges, and would wait longer for
what groups need than for the first records.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.client.consumer.api import Consumer
    from lakelog.client.consumer.fetcher import FetchLimits
    from lakelog.client.consumer.positions import ConsumerRecord
    from lakelog.client.consumer.reader import PartitionReader

__all__ = ["Consumer", "ConsumerRecord", "FetchLimits", "PartitionReader"]

_HOME_OF = {
    "Consumer": "api",
    "ConsumerRecord": "positions",
    "FetchLimits": "fetcher",
    "PartitionReader": "reader",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
