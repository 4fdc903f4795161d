"""Administrators: one trims and configures a topic, the other makes topics and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.base.errors import ErrorCode
from lakelog.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lakelog.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lakelog.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from lakelog.testing.simulation.clients.client import RETRIABLE, Client
from lakelog.testing.simulation.clients.producing import answer_of, batch_of, produce_request
from lakelog.testing.simulation.clients.reading import LATEST, list_offset, read_all
from lakelog.testing.simulation.clients.topics import create_topic
from lakelog.testing.simulation.laws import Law
from lakelog.testing.simulation.ledger import Place
from lakelog.testing.simulation.wire import Lost

if TYPE_CHECKING:
    from lakelog.testing.simulation.world import World

_TOPIC = 2
_SETTINGS = (
    ("internal.segment.bytes", ("1500", "3000", "20000")),
    ("index.interval.bytes", ("0", "100", "4096")),
    ("flush.ms", ("500", "60000")),
    ("compression.type", ("producer", "gzip", "uncompressed")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
)


class Trimmer(Client):
    """Deletes the beginnings of its partitions, and changes how their topic is kept."""

    def __init__(self, world: World, name: str, places: list[Place]) -> None:
        super().__init__(world, name)
        self._places = places

    def replaced(self) -> Trimmer:
        return Trimmer(self.world, self.next_name, self._places)

    async def run(self) -> None:
        while not self.world.is_ending:
            await self.pause(0.5, 4.0)
            if self.rng.random() < 0.5:
                await self._trim(self.some_place(self._places))
            else:
                await self._configure(self._places[0][0])

    async def _trim(self, place: Place) -> None:
        end = await list_offset(self, place, LATEST, committed=False)
        before = self.rng.randint(0, end)
        self.ledger.deleted(place, before)
        wanted = DeleteRecordsPartition(partition_index=place[1], offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=place[0], partitions=[wanted])], timeout_ms=5_000
        )
        try:
            answer = (await self.connection.call(request, 2)).topics[0].partitions[0]
        except Lost:
            return
        if answer.error_code == 0:
            self.ledger.expect(
                Law.TRIMMED,
                answer.low_watermark >= before,
                f"{place} begins at {answer.low_watermark} though {before} was asked for",
            )
        elif answer.error_code not in RETRIABLE and not self.ledger.partition(place).cuts:
            self.unexpected("DeleteRecords", answer.error_code)

    async def _configure(self, topic: str) -> None:
        name, values = self.rng.choice(_SETTINGS)
        change = AlterableConfig(name=name, config_operation=0, value=self.rng.choice(values))
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[change])
        try:
            response = await self.connection.call(
                IncrementalAlterConfigsRequest(resources=[resource]), 1
            )
        except Lost:
            return
        code = response.responses[0].error_code
        if code and code not in RETRIABLE:
            self.unexpected("IncrementalAlterConfigs", code)


class TopicMaker(Client):
    """Makes a topic, writes to it, deletes it, and makes it again under the same name."""

    def replaced(self) -> TopicMaker:
        return TopicMaker(self.world, self.next_name)

    async def run(self) -> None:
        topic = self.name.partition("'")[0]
        await self._delete(topic)
        while not self.world.is_ending:
            if not await create_topic(self, topic, 2, {}):
                await self._delete(topic)
                continue
            await self._use((topic, self.rng.randrange(2)))
            await self._delete(topic)
            await self.pause(0.0, 2.0)

    async def _use(self, place: Place) -> None:
        written: list[bytes] = []
        for _ in range(self.rng.randint(1, 6)):
            await self.pause(0.0, 0.5)
            values = self.new_values(2)
            self.ledger.will_send(place, values)
            answer = answer_of(await self.ask(produce_request(place, batch_of(self, values)), 12))
            if answer.error_code == 0:
                self.ledger.acknowledged(place, answer.base_offset, values)
                written += values
            elif answer.error_code not in RETRIABLE:
                self.unexpected("Produce", answer.error_code)
        if self.rng.random() < 0.5 and not self.world.is_troubled:
            found = await read_all(self, place, committed=False)
            self.ledger.check_all(place, found, committed=False)

    async def _delete(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000)
        while True:
            (answer,) = (await self.ask(request, 6)).responses
            if answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                break
            if answer.error_code not in RETRIABLE:
                self.unexpected("DeleteTopics", answer.error_code)
            await self.pause(0.1, 0.5)
        self.ledger.forget(topic)
