"""A broker in memory that leads a partition, and the partition of a follower."""

from __future__ import annotations

from collections.abc import Callable

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, BrokerRecord, PartitionRecord
from lakelog.protocol.produce import ProduceResponse
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.handlers.produce import produce
from memory_broker import Asked, MemoryBroker
from storage_kit import NOW, Store, create_log, make_batch, memory_store
from wire_client import produce_request

LEADER, FOLLOWER = 1, 2
FETCH, PRODUCE = 18, 12
EPOCH = 4


class ReplicaPair:
    """The topic `t` with one partition, which broker 1 leads and broker 2 follows."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.store: Store = memory_store()
        record = BrokerRecord(FOLLOWER, b"f" * 16, EPOCH, (), None)
        self._submit(lambda image: Plan((record,), None))
        self.follower = self._follow("t")

    def another_topic(self, name: str = "u") -> Partition:
        """Create a topic; return its partition at the follower."""
        return self._follow(name)

    def _follow(self, name: str) -> Partition:
        topic_id = self.broker.create(name)
        self.store.known.add(topic_id)
        self.change((LEADER, FOLLOWER), topic=name)
        log = create_log(self.store.directory, name, 0, topic_id, self.store.config)
        return Partition(log, self.role_in(name), lambda partition: None)

    def _submit(self, plan: Callable[[MetadataImage], Plan[None]]) -> None:
        self.broker.run(self.broker.broker.metadata.submit(plan))

    def change(
        self,
        isr: tuple[int, ...],
        *,
        leader: int = LEADER,
        epoch_rises: bool = False,
        topic: str = "t",
    ) -> None:
        """Give the partition an ISR, in a new leader epoch if it rises."""

        def plan(image: MetadataImage) -> Plan[None]:
            found = image.topic(topic)
            assert found is not None
            old = found.partitions[0]
            epoch = old.leader_epoch + epoch_rises
            state = (0, (LEADER, FOLLOWER), isr, leader, epoch, old.partition_epoch + 1)
            return Plan((PartitionRecord(found.topic_id, *state),), None)

        self._submit(plan)

    def fence(self) -> None:
        """Fence the follower, which leaves the ISR."""
        self._submit(lambda image: Plan((BrokerFenced(FOLLOWER, EPOCH),), None))

    @property
    def leader(self) -> Partition:
        return self.broker.partition("t")

    def role_in(self, topic: str = "t") -> Role:
        """Return the follower's role in the image of the metadata."""
        found = self.broker.broker.image.topic(topic)
        assert found is not None
        return Role.in_image(found.partitions[0], FOLLOWER)

    def diverge(self) -> None:
        """Let the follower lead for a time, with records that no other broker gets."""
        own = self.follower
        own.assume(Role(own.leader_epoch + 1, FOLLOWER, True, (FOLLOWER,)), 0)
        own.append(make_batch(3), NOW)
        for _ in range(2):
            self.change((LEADER,), epoch_rises=True)
        own.assume(self.role_in(), 0)

    def produce(self, acks: int) -> Asked[ProduceResponse]:
        """Send two records to the leader."""
        request = produce_request("t", bytes(make_batch(2)), acks=acks)
        return self.broker.start(produce, request, PRODUCE)
