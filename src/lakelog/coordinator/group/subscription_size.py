"""Limits the total size of the subscriptions of one group's members.

A member's subscription includes the metadata of its assignors, which in the classic protocol
contains the partitions that it owns. The coordinator keeps subscriptions as long as their members,
and passes them to the group's leader or to the assignor. Single requests are bounded, but ten
thousand members may each send a large one. A member whose subscription does not grow is accepted
even if the limit has been lowered.
"""

from __future__ import annotations

from collections.abc import Collection

from lakelog.base.errors import ErrorCode, KafkaError

ENTRY_BYTES = 32
"""Overhead of each name and each assignor: a hundred thousand empty ones take memory, too."""


def topic_names_size(names: Collection[str]) -> int:
    """Return the size of the names of topics that a member subscribes to."""
    return sum(map(len, names)) + ENTRY_BYTES * len(names)


def check_subscriptions(total: int, before: int, after: int, most: int) -> None:
    """Raise `KafkaError(GROUP_MAX_SIZE_REACHED)` if a subscription grows beyond the limit.

    Args:
        total: bytes of all members of the group now.
        before: bytes of this member, included in `total`; 0 if it is new.
        after: bytes of this member's new subscription.
        most: `lakelog.group.subscriptions.max.bytes`.
    """
    wanted = total - before + after
    if after > before and wanted > most:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The subscriptions of the group's members would take {wanted} bytes, more than "
            f"lakelog.group.subscriptions.max.bytes ({most}): subscribe to fewer topics or by a "
            "regular expression, or raise that limit.",
        )
