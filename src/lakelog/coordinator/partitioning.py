"""The partition of an internal topic that stores a group or a transactional id."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Return `java.lang.String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(data), 2):
            value = (value * 31 + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partitions: int) -> int:
    """Return the partition that coordinates `key`: its absolute Java hash modulo `partitions`.

    The hash -2^31 has no positive counterpart and counts as 0
    (`org.apache.kafka.common.utils.Utils.abs`).
    """
    hashed = java_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions
