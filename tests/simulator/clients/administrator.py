"""Administrators: one deletes records and changes settings, one creates and deletes topics."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.checkers.partition_check import check_partition
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.consumers.reading import LATEST, list_offset, read_all
from simulator.clients.context import ClientContext
from simulator.clients.producers.batches import answer_of, batch_of, produce_request
from simulator.clients.topics import create_topic
from simulator.network.connection import NoResponse

_TOPIC = 2
_SETTINGS = (
    ("internal.segment.bytes", ("1500", "3000", "20000")),
    ("index.interval.bytes", ("0", "100", "4096")),
    ("flush.ms", ("500", "60000")),
    ("compression.type", ("producer", "gzip", "uncompressed")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
)


class Trimmer(Client):
    """Calls DeleteRecords for its partitions, and changes settings of their topic."""

    def __init__(self, context: ClientContext, name: str, partitions: list[Place]) -> None:
        super().__init__(context, name)
        self._places = partitions
        self._made: dict[str, str] = {}
        """Acknowledged settings: the value of the last request for each."""
        self._unsure: set[str] = set()
        """Settings for which a request without a response may still arrive."""

    def replaced(self) -> Trimmer:
        return Trimmer(self.context, self.next_name, self._places)

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.5, 4.0)
            choice = self.rng.random()
            if choice < 0.5:
                await self._trim(self.some_place(self._places))
            elif choice < 0.8:
                await self._configure(self._places[0][0])
            elif self._is_alone:
                await self._describe(self._places[0][0])

    @property
    def _is_alone(self) -> bool:
        """Whether no request of a crashed predecessor can be under way."""
        return "'" not in self.name

    async def _trim(self, partition: Place) -> None:
        end = await list_offset(self, partition, LATEST, committed=False)
        before = self.rng.randint(0, end)
        self.history.deleted(partition, before)
        wanted = DeleteRecordsPartition(partition_index=partition[1], offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=partition[0], partitions=[wanted])], timeout_ms=5_000
        )
        try:
            answer = (await self.connection.call(request, 2)).topics[0].partitions[0]
        except NoResponse:
            return
        if answer.error_code == 0:
            self.history.trimmed(partition, answer.low_watermark)
            self.findings.expect(
                Law.TRIMMED,
                answer.low_watermark >= before,
                f"{partition} begins at {answer.low_watermark} though {before} was asked for",
            )
        elif answer.error_code not in RETRIABLE and not self.history.partition(partition).cuts:
            self.unexpected("DeleteRecords", answer.error_code)

    async def _configure(self, topic: str) -> None:
        name, values = self.rng.choice(_SETTINGS)
        value = self.rng.choice(values)
        change = IncrementalConfig(name=name, config_operation=0, value=value)
        resource = IncrementalResource(resource_type=_TOPIC, resource_name=topic, configs=[change])
        try:
            response = await self.connection.call(
                IncrementalAlterConfigsRequest(resources=[resource]), 1
            )
        except NoResponse:
            self._unsure.add(name)
            return
        code = response.responses[0].error_code
        if code == 0:
            self._made[name] = value
            self.conditions.on_acknowledged()
        else:
            self._unsure.add(name)
            if code not in RETRIABLE:
                self.unexpected("IncrementalAlterConfigs", code)

    async def _describe(self, topic: str) -> None:
        resource = DescribeConfigsResource(
            resource_type=_TOPIC, resource_name=topic, configuration_keys=None
        )
        try:
            response = await self.connection.call(DescribeConfigsRequest(resources=[resource]), 4)
        except NoResponse:
            return
        (result,) = response.results
        if result.error_code:
            if result.error_code not in RETRIABLE:
                self.unexpected("DescribeConfigs", result.error_code)
            return
        found = {entry.name: entry.value for entry in result.configs}
        for name in sorted(self._made.keys() - self._unsure):
            self.findings.expect(
                Law.CONFIG_KEPT,
                found.get(name) == self._made[name],
                f"{topic} has {name}={found.get(name)} after {self._made[name]} was acknowledged",
            )


class TopicMaker(Client):
    """Creates a topic, writes to it, deletes it, and creates it again under the same name."""

    _may_be_deleted = False
    """Whether a deletion of unknown outcome may still arrive."""

    def replaced(self) -> TopicMaker:
        return TopicMaker(self.context, self.next_name)

    async def run(self) -> None:
        topic, _, predecessor = self.name.partition("'")
        self._may_be_deleted = bool(predecessor)
        await self._delete(topic)
        while not self.conditions.is_ending:
            if not await create_topic(self, topic, 2, {}, replicas=self._some_replicas()):
                await self._delete(topic)
                continue
            self.conditions.on_acknowledged()
            await self._use((topic, self.rng.randrange(2)))
            await self._delete(topic)
            await self.pause(0.0, 2.0)

    def _some_replicas(self) -> int:
        most = self.context.plan.replicas
        return most if most < 3 else self.rng.choice((2, most))

    async def _use(self, partition: Place) -> None:
        written: list[bytes] = []
        for _ in range(self.rng.randint(1, 6)):
            await self.pause(0.0, 0.5)
            values = self.new_values(2)
            self.history.will_send(partition, values)
            answer = await self._write(partition, values)
            if answer is None:
                return
            is_unknown = answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_unknown and self.context.plan.replicas > 1:
                continue  # for a broker whose image is older
            self.findings.expect(
                Law.TOPIC_KEPT,
                not is_unknown or self._may_be_deleted,
                f"{partition} is unknown, and no client deleted it",
            )
            if answer.error_code == 0:
                self.history.acknowledged(partition, answer.base_offset, values)
                written += values
            elif answer.error_code not in RETRIABLE:
                self.unexpected("Produce", answer.error_code)
        if self.rng.random() < 0.5 and not self.conditions.is_troubled:
            found = await read_all(self, partition, committed=False)
            check_partition(self.history, partition, found, committed=False)

    async def _write(self, partition: Place, values: list[bytes]) -> Any | None:
        """Return the response; `None` without one if a late deletion has removed the topic."""
        request = produce_request(partition, batch_of(self, values))
        while True:
            try:
                return answer_of(await self.connection.call(request, 12))
            except NoResponse:
                self.lost += 1
            # A client of a cluster finds no leader then, and has no broker to ask.
            if self._may_be_deleted and not await self._exists(partition[0]):
                return None
            await self.pause(0.05, 0.5)

    async def _exists(self, name: str) -> bool:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        (topic,) = (await self.ask(request, 9)).topics
        return bool(topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000)
        while True:
            try:
                (answer,) = (await self.connection.call(request, 6)).responses
            except NoResponse:
                self._may_be_deleted = True
                await self.pause(0.05, 0.5)
                continue
            if answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
                self._may_be_deleted = True
            elif answer.error_code not in RETRIABLE:
                self.unexpected("DeleteTopics", answer.error_code)
            await self.pause(0.1, 0.5)
        self.history.forget(topic)
