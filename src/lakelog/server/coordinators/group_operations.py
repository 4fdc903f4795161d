"""The operations on groups that clients may be authorized for, in responses that list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""READ, DELETE, DESCRIBE and those on configurations, as bits of Kafka's AclOperation."""


class DescribedGroup(Protocol):
    """A group in the response of DescribeGroups or of ConsumerGroupDescribe."""

    error_code: int
    authorized_operations: int


def authorize(groups: Iterable[DescribedGroup]) -> None:
    """Set the operations of each group that was found: clients are not authenticated."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = _GROUP_OPERATIONS
