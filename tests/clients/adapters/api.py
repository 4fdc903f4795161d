"""The operations of a client library, so that one scenario runs with every library.

An adapter only translates: it adds no retries and no checks, and changes no default of a library
unless a scenario asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


def is_restarted(bootstrap: str) -> bool:
    """Return whether `bootstrap` are several brokers, which are restarted in turn."""
    return "," in bootstrap


class Sent(NamedTuple):
    """A record to produce; partition none lets the library choose."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Received(NamedTuple):
    """A consumed record."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Member(Protocol):
    """A consumer that may be in a group."""

    def member_id(self) -> str:
        """The id that the group's coordinator knows it by; empty outside a group."""
        ...

    def close(self) -> None:
        """Leaves the group."""
        ...


class Consumer(Member, Protocol):
    def poll(self, timeout_s: float) -> list[Received]: ...

    def assign(self, topic: str, partitions: Sequence[int]) -> None: ...

    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    def assignment(self) -> set[int]:
        """The partitions of the one topic that is subscribed to."""
        ...

    def commit(self) -> None:
        """Commits the positions after what `poll` has returned, and waits for the answer."""
        ...

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        """Partitions without a record at or after the time are left out."""
        ...


class GroupDescription(NamedTuple):
    state: str
    members: int


class Admin(Protocol):
    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topics(self) -> set[str]: ...

    def partition_count(self, topic: str) -> int: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """Every key with its value in force."""
        ...

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        """Incrementally: other keys stay as they are."""
        ...

    def groups(self) -> set[str]: ...

    def describe_group(self, group: str) -> GroupDescription: ...

    def committed(self, group: str, topic: str) -> dict[int, int]: ...

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]: ...

    def cluster_nodes(self) -> set[tuple[int, str, int]]: ...

    def close(self) -> None: ...


class Client(Protocol):
    """One library. It may be made for idempotent producers only."""

    name: str
    alters_configs: bool
    """Whether its admin client has IncrementalAlterConfigs."""
    sends_null_headers: bool
    """Whether its producer accepts null as a header's value."""

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        compression: str | None = None,
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        """Sends all, waits for all; (partition, offset) of each, in the order given."""
        ...

    def consumer(self, group: str | None = None, topic: str | None = None) -> Consumer:
        """From the earliest record on, without automatic commits; subscribed if given a topic."""
        ...

    def admin(self) -> Admin: ...
