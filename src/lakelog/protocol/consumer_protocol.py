"""Subscriptions and assignments of classic consumer groups, inside JoinGroup and SyncGroup.

```
blob    int16 version, then a Subscription or an Assignment of that version
```
The broker forwards these blobs and decodes them only to describe groups. A version above the newest
known one is decoded as the newest, and trailing bytes are ignored: later versions only add fields.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from lakelog.wire import schema as wire
from lakelog.wire.codec import decode_prefix, encode
from lakelog.wire.primitives import WireError

M = TypeVar("M", bound=wire.Message)

_VERSION = struct.Struct(">h")


class TopicPartition(wire.Struct):
    """Partitions of one topic."""

    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.int32)


class ConsumerProtocolSubscription(wire.Message, versions="0-3"):
    """The topics that a member subscribes to.

    Versions: 1 adds the partitions that it still owns, for cooperative rebalancing (KIP-429), 2 the
    generation of this ownership (KIP-792), 3 its rack (KIP-881).
    """

    topics: list[str] = wire.array(wire.string)
    user_data: wire.Buffer | None = wire.binary(nullable="0+", default=None)
    """Data of the assignor, in its own format."""
    owned_partitions: list[TopicPartition] = wire.array(TopicPartition, "1+")
    generation_id: int = wire.int32("2+", default=-1)
    rack_id: str | None = wire.string("3+", nullable="0+", default=None)


class ConsumerProtocolAssignment(wire.Message, versions="0-3"):
    """The partitions assigned to a member; all versions are equal."""

    assigned_partitions: list[TopicPartition] = wire.array(TopicPartition)
    user_data: wire.Buffer | None = wire.binary(nullable="0+", default=None)
    """Data of the assignor, in its own format."""


def encode_versioned(message: wire.Message, version: int) -> bytes:
    """Return a blob. Raises `WireError` for values that the version cannot carry."""
    return _VERSION.pack(version) + encode(message, version)


def decode_versioned(kind: type[M], buffer: wire.Buffer) -> M:
    """Return the content of a blob. Raises `WireError` for malformed bytes."""
    version = min(version_of(buffer), kind.__versions__.highest)
    message, _ = decode_prefix(kind, buffer, version, _VERSION.size)
    return message


def version_of(buffer: wire.Buffer) -> int:
    """Return the version of a blob. Raises `WireError` if it is too short."""
    if len(buffer) < _VERSION.size:
        raise WireError("a consumer protocol blob without a version")
    version: int = _VERSION.unpack_from(buffer)[0]
    if version < 0:
        raise WireError(f"a consumer protocol blob of version {version}")
    return version
