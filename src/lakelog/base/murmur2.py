"""The 32-bit Murmur2 hash with the seed that Kafka's default partitioner uses."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit number (`Utils.murmur2` of Kafka, which is signed)."""
    length = len(data)
    value = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if tail := data[whole:]:
        value = (value ^ int.from_bytes(tail, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Java's producer chooses for a record with this key.

    Source: `BuiltInPartitioner.partitionForKey` of Kafka.
    """
    # `Utils.toPositive` clears the sign bit and does not negate.
    return (murmur2(key) & 0x7FFFFFFF) % partitions
