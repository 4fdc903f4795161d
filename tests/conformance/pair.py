"""Where the two brokers are that get compared."""

from typing import NamedTuple


class Pair(NamedTuple):
    """host:port of this broker and of Apache Kafka."""

    ours: str
    kafka: str
