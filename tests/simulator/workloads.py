"""The workloads of a plan: their topics and clients, for one broker."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from simulator.brokers.host import BrokerHost
from simulator.checkers.observations import Place
from simulator.checkers.retention import Retention
from simulator.clients.administrator import TopicMaker, Trimmer
from simulator.clients.client import Client
from simulator.clients.consumers.consumer import Consumer
from simulator.clients.consumers.session_consumer import SessionConsumer
from simulator.clients.context import ClientContext
from simulator.clients.expander import Expander
from simulator.clients.groups.classic_member import ClassicMember
from simulator.clients.groups.consumer_member import ConsumerMember
from simulator.clients.groups.member import DYNAMIC, Role
from simulator.clients.producers.idempotent import IdempotentProducer, PlainProducer
from simulator.clients.producers.new_topics import NewTopicProducer
from simulator.clients.producers.sink import SinkQuery
from simulator.clients.producers.transactional import TransactionalProducer
from simulator.clients.reconfigurer import Reconfigurer
from simulator.clients.topics import create_topic
from simulator.plan import Plan

_INTERNAL = {"internal.segment.bytes": "4000", "cleanup.policy": "compact"}
_MANY = 200
"""Partitions of a topic of which only `_BUSY` are written to."""
_BUSY = 6
_STATIC = (
    ("one", Role("one")),
    ("rival", Role("one", rivals=True)),
    ("two", Role("two")),
    ("dynamic", DYNAMIC),
)


class _TopicCreator(Client):
    """Creates the topics before the other clients start."""

    def __init__(self, context: ClientContext, workloads: Workloads) -> None:
        super().__init__(context, workloads.named("stage-hand"))
        self._workloads = workloads

    async def run(self) -> None:
        await self._workloads.fill(self)
        self.connection.close()


class Home(Protocol):
    """The broker, or the cluster, of some workloads."""

    @property
    def suffix(self) -> str:
        """The suffix of the names of topics, groups and clients."""

    @property
    def clock(self) -> Spread: ...
    @property
    def hosts(self) -> Sequence[BrokerHost]: ...


class Spread(Protocol):
    """The wall clock of a broker, or the clocks of all brokers of a cluster."""

    def spread_ms(self, since: float) -> float:
        """See `SimulatedClock.spread_ms`."""


class Workloads:
    """The workloads of one broker or cluster.

    `partitions` are partitions of topics that are not deleted.
    """

    def __init__(self, context: ClientContext, host: Home) -> None:
        self._context = context
        self._plan: Plan = context.plan
        self.host = host
        self.topic_partitions: list[Place] = []
        self.clients: list[Client] = []

    def named(self, name: str) -> str:
        """Return a name with the suffix of the broker (`Fleet.home_of`)."""
        return name + self.host.suffix

    async def create(self) -> None:
        """Create the topics on the broker, and the clients, which are not started yet."""
        await _TopicCreator(self._context, self).start()

    async def fill(self, hand: Client) -> None:
        workloads: dict[str, Any] = {
            "plain": self._plain,
            "idempotent": self._idempotent,
            "transactions": self._transactions,
            "sinks": self._sinks,
            "compaction": self._compaction,
            "classic group": self._classic_group,
            "consumer group": self._consumer_group,
            "static classic members": self._static_classic_members,
            "static consumer members": self._static_consumer_members,
            "administration": self._administration,
            "retention": self._retention,
            "classic transactions": self._classic_transactions,
            "topics": self._topics,
            "transactions in new topics": self._transactions_in_new_topics,
            "reconfiguration": self._reconfiguration,
            "many partitions": self._many_partitions,
            "growth": self._growth,
        }
        for topic in ("__consumer_offsets", "__transaction_state"):
            await create_topic(hand, topic, 2, _INTERNAL)
        for name, workload in workloads.items():
            if name in self._plan.workloads:
                creating: Coroutine[Any, Any, None] = workload(hand)
                await creating

    async def _topic(self, hand: Client, name: str, partitions: int, **config: str) -> list[Place]:
        settings = {key.replace("_", "."): text for key, text in config.items()}
        topic = self.named(name)
        await create_topic(hand, topic, partitions, settings)
        topic_partitions = [(topic, index) for index in range(partitions)]
        self.topic_partitions += topic_partitions
        return topic_partitions

    def _readers(self, partitions: list[Place]) -> None:
        topic = partitions[0][0].removesuffix(self.host.suffix)
        for committed in (False, True):
            name = self.named(f"{topic}-{'committed' if committed else 'all'}")
            self.clients.append(Consumer(self._context, name, partitions, committed=committed))
        if self._plan.replicas > 1:
            return  # a session is with one leader, and its partitions may have several
        self.clients.append(
            SessionConsumer(self._context, self.named(f"{topic}-session"), partitions)
        )

    async def _plain(self, hand: Client) -> None:
        partitions = await self._topic(hand, "plain", 2)
        # A new leader may lack what only the old one has acknowledged.
        for acks in (0, 1, -1) if self._plan.replicas == 1 else (-1,):
            self.clients.append(
                PlainProducer(self._context, self.named(f"plain{acks}"), partitions, acks)
            )
        self._readers(partitions[:1])

    async def _idempotent(self, hand: Client) -> None:
        partitions = await self._topic(hand, "orders", 2)
        for number in range(2):
            self.clients.append(
                IdempotentProducer(self._context, self.named(f"once{number}"), partitions)
            )
        self._readers(partitions)

    async def _transactions(self, hand: Client) -> None:
        partitions = await self._topic(hand, "accounts", 3)
        for number, version in enumerate((0, 2, 2)):
            name = self.named(f"txn{number}")
            self.clients.append(TransactionalProducer(self._context, name, partitions, version))
        self._readers(partitions)

    async def _classic_transactions(self, hand: Client) -> None:
        """All of one producer have the same epoch: a late marker ends another transaction."""
        partitions = await self._topic(hand, "ledger", 3)
        for number in range(3):
            name = self.named(f"ctxn{number}")
            client = TransactionalProducer(self._context, name, partitions, 0, pause_s=1.5)
            self.clients.append(client)
        self._readers(partitions)

    async def _sinks(self, hand: Client) -> None:
        partitions = await self._topic(hand, "results", 3)
        for number in range(2):
            self.clients.append(SinkQuery(self._context, self.named(f"sink{number}"), partitions))
        self._readers(partitions)

    async def _compaction(self, hand: Client) -> None:
        delete_retention_ms = self._context.simulator.random_stream(self.named("cast")).choice(
            (0, 4_000, 60_000)
        )
        clock = self.host.clock
        config = {
            "cleanup_policy": "compact",
            "delete_retention_ms": str(delete_retention_ms),
            "min_cleanable_dirty_ratio": "0.01",
        }
        topic_partitions = await self._topic(hand, "state", 2, **config)
        for topic_partition in topic_partitions:
            partition = self._context.records.partition(topic_partition)
            partition.compacted = True
            partition.may_drop_tombstone = lambda made_at: (
                clock.spread_ms(made_at) >= delete_retention_ms
            )
        self.clients.append(
            IdempotentProducer(self._context, self.named("keys"), topic_partitions, keyed=True)
        )
        for version in (0, 2):
            name = self.named(f"ktxn{version}")
            client = TransactionalProducer(
                self._context, name, topic_partitions, version, keyed=True
            )
            self.clients.append(client)
        self._readers(topic_partitions)

    async def _classic_group(self, hand: Client) -> None:
        partitions = await self._topic(hand, "jobs", 4)
        for number in range(3):
            self.clients.append(
                ClassicMember(
                    self._context, self.named(f"cm{number}"), self.named("workers"), partitions
                )
            )

    async def _consumer_group(self, hand: Client) -> None:
        partitions = await self._topic(hand, "tasks", 4)
        for number in range(3):
            self.clients.append(
                ConsumerMember(
                    self._context, self.named(f"km{number}"), self.named("team"), partitions
                )
            )

    async def _static_classic_members(self, hand: Client) -> None:
        partitions = await self._topic(hand, "posts", 4)
        for name, role in _STATIC:
            self.clients.append(
                ClassicMember(
                    self._context, self.named(f"cs-{name}"), self.named("crew"), partitions, role
                )
            )

    async def _static_consumer_members(self, hand: Client) -> None:
        partitions = await self._topic(hand, "shifts", 4)
        for name, role in _STATIC:
            self.clients.append(
                ConsumerMember(
                    self._context, self.named(f"ks-{name}"), self.named("watch"), partitions, role
                )
            )

    async def _administration(self, hand: Client) -> None:
        partitions = await self._topic(hand, "trimmed", 2)
        for partition in partitions:
            self._context.records.partition(partition).has_times = False
        self.clients.append(IdempotentProducer(self._context, self.named("steady"), partitions))
        self.clients.append(Trimmer(self._context, self.named("trimmer"), partitions))
        self.clients.append(TopicMaker(self._context, self.named("shortlived")))
        self._readers(partitions)

    async def _topics(self, _: Client) -> None:
        self.clients.append(TopicMaker(self._context, self.named("fleeting")))

    async def _reconfiguration(self, hand: Client) -> None:
        """Replicas and settings change."""
        partitions = await self._topic(hand, "moving", 2)
        self.clients.append(IdempotentProducer(self._context, self.named("mover"), partitions))
        self.clients.append(Reconfigurer(self._context, self.named("reconfigurer"), partitions))
        self._readers(partitions)

    async def _growth(self, hand: Client) -> None:
        """Partitions and topics are added, on brokers that join meanwhile."""
        partitions = await self._topic(hand, "growing", 1)
        lists = partitions, self.topic_partitions
        self.clients.append(
            Expander(self._context, self.named("expander"), partitions[0][0], lists)
        )
        self.clients.append(IdempotentProducer(self._context, self.named("settler"), partitions))
        self._readers(partitions)

    async def _many_partitions(self, hand: Client) -> None:
        """Most are idle: the fetch sessions of followers then omit them."""
        partitions = await self._topic(hand, "many", _MANY)
        del self.topic_partitions[-len(partitions) + _BUSY :]
        self.clients.append(
            IdempotentProducer(self._context, self.named("roamer"), partitions[:_BUSY])
        )

    async def _transactions_in_new_topics(self, _: Client) -> None:
        for version in (0, 2):
            name = self.named(f"novel{version}")
            self.clients.append(
                NewTopicProducer(self._context, name, self.topic_partitions, version)
            )

    async def _retention(self, hand: Client) -> None:
        partitions = await self._topic(
            hand, "events", 2, retention_ms="8000", retention_bytes="9000"
        )
        for partition in partitions:
            retention = Retention(8000, 9000, self.host.clock.spread_ms)
            records = self._context.records
            records.partition(partition).retention = partial(retention.lost, records, partition)
            records.partition(partition).has_times = False
        self.clients.append(IdempotentProducer(self._context, self.named("emitter"), partitions))
        self._readers(partitions)
