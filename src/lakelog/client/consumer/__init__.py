"""Consumers: exact ranges of partitions, and members of groups.

Each name is imported at its first use. Spark's workers only read ranges, and importing the modules
of groups would take longer than reading the first records. Read `reader.py` first, then `api.py`.
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
