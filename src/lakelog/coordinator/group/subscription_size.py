"""How much the members of one group may say of themselves, all together.

What a member subscribes to, with the metadata of its assignors (in which the classic protocol has
the partitions it owns), is kept as long as it is a member, and told to others or to the assignor.
Single requests are bounded; ten thousand members may each make a large one. A member that says no
more than is known of it is not refused when the limit is lower than it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.runtime.api import Buffer

_ENTRY_BYTES = 32
"""Of each name and each assignor beside its text: a hundred thousand empty ones take memory too."""


def protocols_size(protocols: Iterable[tuple[str, Buffer]]) -> int:
    """Bytes of a classic member's assignors; of the names, characters."""
    return sum(len(name) + len(metadata) + _ENTRY_BYTES for name, metadata in protocols)


def subscription_size(protocols: Iterable[tuple[str, Buffer]], instance_id: str | None) -> int:
    """Bytes of what a classic member says of itself."""
    return protocols_size(protocols) + len(instance_id or "")


def topic_names_size(names: Collection[str]) -> int:
    """The same of topics that a member subscribes to by name."""
    return sum(map(len, names)) + _ENTRY_BYTES * len(names)


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
