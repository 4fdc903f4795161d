"""A client for the Kafka protocol: producer, consumer, exact reader, administrator.

lakelog has its own client because its table engine and its tests need control over offsets,
sequences and whole batches, which wrapped libraries do not offer. Read `cluster.py` first.
"""

from __future__ import annotations

from lakelog.client.api import Client, connect

__all__ = ["Client", "connect"]
