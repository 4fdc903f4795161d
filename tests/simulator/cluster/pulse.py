"""The pulse of a cluster: one client that no fault touches writes to some partitions all the time.

It sends each record to every broker, and so needs no metadata: one of them leads. Its
acknowledgements show which partitions are available, and how a broker describes the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from lakelog.base.errors import KafkaError
from lakelog.metadata.image import MetadataImage
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from simulator.brokers.host import BrokerHost
from simulator.checkers.observations import Place
from simulator.clients.client import Client
from simulator.clients.context import ClientContext
from simulator.clients.producers.batches import batch_of
from simulator.clients.topics import add_partitions, create_topic
from simulator.cluster.availability import SILENCE_S_MAX, Availability
from simulator.cluster.brokers import ClusterBrokers
from simulator.cluster.health import ask_health
from simulator.cluster.shown import Shown
from simulator.cluster.soundness import are_joined, soundness_of
from simulator.network.connection import Connections, NoResponse

TOPIC = "pulse"
MIN_ISR = 2
_PERIOD_S = 0.4
_OBSERVED_EVERY_S = 0.1
_TIMEOUT_S = 1.5
_VERSION = 12
_METADATA_VERSION = 9


class Pulse(Client):
    """Writes to the partitions of its own topic, and asks brokers for their state.

    Args:
        brokers: the brokers of the cluster, to which more may come.
        image: returns the newest metadata image of any broker.
    """

    def __init__(
        self,
        context: ClientContext,
        brokers: ClusterBrokers,
        image: Callable[[], MetadataImage],
    ) -> None:
        super().__init__(context, TOPIC)
        self._brokers = brokers
        self._hosts = brokers.hosts
        self._image = image
        self._places: list[Place] = []
        self._connections = self._connect_all()
        self._beating: set[int] = set()
        """Node ids of brokers that this client writes through."""
        self._spreading = asyncio.Lock()
        self._health: dict[int, asyncio.Task[None]] = {}
        """Tasks that ask a broker for the health of the cluster, by node id."""
        self.availability: Availability | None = None
        self._blind_at = float("-inf")
        """When a schedule last kept this client from a broker: some other client may write."""
        self._shown = Shown(self.findings, self._hosts, MIN_ISR, lambda: image().fenced)

    def _connect_all(self) -> Connections:
        return Connections(self.context.network, self.process, self._brokers.addresses)

    async def create(self) -> None:
        """Create the topic, before the faults."""
        settings = {"min.insync.replicas": str(MIN_ISR)}
        await create_topic(self, TOPIC, len(self._hosts) - 1, settings)

    async def run(self) -> None:
        state = soundness_of(self._hosts, self.context.network, self.name)
        self.availability = Availability(self.findings, state, self.now)
        founders = list(self._hosts)
        async with asyncio.TaskGroup() as tasks:
            while not self.conditions.is_ending:
                self._watch_partitions(self.availability)
                for host in self._hosts:
                    if host.node_id not in self._beating:
                        self._beating.add(host.node_id)
                        tasks.create_task(self._beat(host, tasks))
                        if host not in founders:
                            tasks.create_task(self._spread_to(host, founders))
                self._observe()
                self._shown.see_brokers(self.now)
                await asyncio.sleep(_OBSERVED_EVERY_S)
        self._connections.close()

    def _watch_partitions(self, availability: Availability) -> None:
        """Watch new partitions of the topic, which exist as soon as one broker knows them."""
        topic = self._image().topic(TOPIC)
        for index, partition in sorted(topic.partitions.items()) if topic is not None else ():
            topic_partition = TOPIC, index
            if topic_partition not in self._places:
                self._places.append(topic_partition)
                availability.watch(topic_partition, partition.replicas)

    async def _spread_to(self, host: BrokerHost, founders: Sequence[BrokerHost]) -> None:
        """Add a partition with a replica on a new broker, which often leads it."""
        count = self.context.plan.replicas
        others = self.rng.sample([each.node_id for each in founders], count - 1)
        replicas = self.rng.sample([host.node_id, *others], count)
        async with self._spreading:
            partitions = len(self._places) + 1
            while not (self.conditions.is_ending or host.is_removed):
                if await add_partitions(self, TOPIC, partitions, [replicas]):
                    self.findings.counts["partitions on new brokers"] += 1
                    return
                await self.pause(0.1, 0.5)

    def _observe(self) -> Availability:
        assert self.availability is not None
        state = soundness_of(self._hosts, self.context.network, self.name)
        self.availability.observe(state, self.now)
        network = self.context.network
        if not all(are_joined(network, self.name, host.name) for host in self._hosts):
            self._blind_at = self.now
        return self.availability

    async def _beat(self, host: BrokerHost, tasks: asyncio.TaskGroup) -> None:
        """Write through one broker, as far as it leads, and judge its word on the partitions."""
        while not (self.conditions.is_ending or host.is_removed):
            with contextlib.suppress(NoResponse):
                await self._write(host)
                if any(map(self._is_silent, self._places)):
                    # Beside the writes, which would be late: it asks dead brokers as well.
                    if host.node_id not in self._health:
                        health = tasks.create_task(self._judge_health(host))
                        self._health[host.node_id] = health
                    await self._judge(host)
            await self.pause(0.5 * _PERIOD_S, 1.5 * _PERIOD_S)

    async def _write(self, host: BrokerHost) -> None:
        batches = [
            PartitionProduceData(index=index, records=batch_of(self, self.new_values(1)))
            for _, index in self._places
        ]
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=int(_TIMEOUT_S * 500),
            topic_data=[TopicProduceData(name=TOPIC, partition_data=batches)],
        )
        connection = self._connections.to(host.node_id)
        response = await connection.call(request, _VERSION, _TIMEOUT_S)
        for answer in response.responses[0].partition_responses:
            if answer.error_code == 0:
                partition = TOPIC, answer.index
                known = self.history.partition(partition)
                known.end = max(known.end, answer.base_offset + 1)
                self._observe().acknowledged(partition)
                self.findings.counts["pulses"] += 1

    def _is_silent(self, partition: Place) -> bool:
        assert self.availability is not None
        return self.availability.silent_s(partition) > SILENCE_S_MAX

    async def _judge(self, host: BrokerHost) -> None:
        """Check that a broker which no fault touches shows that partitions cannot be written."""
        topic = MetadataRequestTopic(name=TOPIC)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        connection = self._connections.to(host.node_id)
        response = await connection.call(request, _METADATA_VERSION, _TIMEOUT_S)
        availability = self._observe()
        untouched_s = self._untouched_s(host)
        for row in response.topics[0].partitions:
            partition = TOPIC, row.partition_index
            if partition not in self._places:
                continue
            if untouched_s > SILENCE_S_MAX and self._is_silent(partition):
                silent_s = availability.silent_s(partition)
                self._shown.see_partition(host, partition, row, silent_s, self.now)
            else:
                self._shown.excuse(host, partition)

    def _untouched_s(self, host: BrokerHost) -> float:
        """Return since when no fault touches a broker, or this client's way to brokers."""
        return min(self._observe().able_s(host.node_id), self.now - self._blind_at)

    async def _judge_health(self, host: BrokerHost) -> None:
        """Check what `cluster health` shows by a broker, while partitions cannot be written."""
        connections = self._connect_all()
        while not self.conditions.is_ending and any(map(self._is_silent, self._places)):
            asked_at = self.now
            with contextlib.suppress(KafkaError):
                health = await ask_health(host.node_id, connections)
                since_s = self.now - asked_at
                for partition in self._places:
                    silent_s = self._observe().silent_s(partition)
                    untouched_s = self._untouched_s(host) - since_s
                    if min(untouched_s, silent_s - since_s) > SILENCE_S_MAX:
                        self._shown.see_health(host, partition, health, silent_s, self.now)
            await asyncio.sleep(_PERIOD_S)
        del self._health[host.node_id]
        connections.close()
