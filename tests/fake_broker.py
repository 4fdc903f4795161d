"""The parts of a broker that handlers of groups and transactions call, as set by a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.transaction.state import TopicPartition, TransactionVersion
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context


@dataclass
class FakeTopics:
    counts: dict[str, int]

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass
class FakeTransactions:
    """Answers every partition with `code`; `asked` has the arguments."""

    code: ErrorCode = ErrorCode.NONE
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Sequence[TopicPartition],
        version: TransactionVersion,
    ) -> ErrorCode:
        self.asked.append((transactional_id, producer, list(partitions), version))
        return self.code

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        return dict.fromkeys(partitions, self.code)


@dataclass
class FakeBroker:
    topics: FakeTopics = field(default_factory=lambda: FakeTopics({}))
    transactions: FakeTransactions = field(default_factory=FakeTransactions)
    groups: Any = None

    @property
    def broker(self) -> Broker:
        """The fake, as handlers take it."""
        return cast(Broker, self)


@dataclass
class FakeContext:
    version: int
    client_id: str = "a client"
    client_host: str = "10.0.0.1"

    @property
    def context(self) -> Context:
        """The fake, as handlers take it."""
        return cast(Context, self)
