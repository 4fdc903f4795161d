"""A client of our own for the Kafka protocol: producer, consumer, exact reader, administrator.

It needs what no wrapped library offers: control over offsets, sequences and whole batches.
"""

from __future__ import annotations

from lakelog.client.api import Client, connect

__all__ = ["Client", "connect"]
