"""Records as confluent-kafka delivers them, without the options of its type `Message`."""

from __future__ import annotations

from typing import NamedTuple

import confluent_kafka


class Delivered(NamedTuple):
    """A delivered record. A null value is an error of the test."""

    partition: int
    offset: int
    value: bytes


def delivered(message: confluent_kafka.Message) -> Delivered:
    """Return the place and the value of a message that is a record, not an error."""
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    return Delivered(partition, offset, value)
