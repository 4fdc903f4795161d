"""How much the members of one group may say of themselves, all together.

What a member subscribes to, with the metadata of its assignors (in which the classic protocol has
the partitions it owns), is kept as long as it is a member, and told to others or to the assignor.
Single requests are bounded; ten thousand members may each make a large one. A member that says no
more than before is not refused, so that a lower limit ends no group.
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.member import Protocols


def protocols_size(protocols: Protocols) -> int:
    """Bytes of a classic member's subscription; of the names, characters."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


def check_subscriptions(total: int, before: int, after: int, most: int) -> None:
    """Raises GROUP_MAX_SIZE_REACHED.

    Args:
        total: what all members of the group take now.
        before: what one of them takes of that, 0 if it is new.
        after: what it is to take.
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
