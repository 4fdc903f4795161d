"""Everything that a broker returns about its data, by every request that uses the files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corruption.folder import GROUP, ROUNDS, SETTINGS, TOPICS, TRANSACTIONAL_IDS
from lakelog.base.uuids import encode_uuid
from lakelog.protocol.api import api_for
from lakelog.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.protocol.metadata import MetadataRequest
from lakelog.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from lakelog.protocol.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from lakelog.records.batch import check_crc, iter_batches
from lakelog.records.record import decode_records
from lakelog.wire.framing import decode_response, encode_request
from socketless_broker import SocketlessBroker
from wire_client import RECENTLY_MS

Picture = dict[str, Any]
"""Answers by question; a refusal is `RefusedRead`."""
NOW_MS = RECENTLY_MS + 3_600_000
_TOPICS = (*TOPICS, "late", "__consumer_offsets", "__transaction_state")
_EPOCHS = ROUNDS + 4
_COARSE = 7
_TIMEOUT_S = 60.0


class RefusedRead(str):
    """The code of an error, in place of data."""

    __slots__ = ()


class Asking:
    """Questions to a broker in this process."""

    def __init__(self, folder: Path) -> None:
        settings = {key.replace(".", "_"): text for key, text in SETTINGS.items()}
        settings["log_cleaner_enable"] = "false"
        self.broker = SocketlessBroker(folder, settings=settings)
        self.broker.clock.now_ms = NOW_MS

    async def call(self, message: Any, version: int) -> Any:
        api = api_for(type(message))
        sent = self.broker.socket.was_sent
        answer = self.broker.ask(b"".join(encode_request(api, version, 1, "test", message)))
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            assert not self.broker.connection.closed, "the broker closed the connection"
            sent.clear()
            await asyncio.wait_for(sent.wait(), _TIMEOUT_S)
            answer += self.broker.take_answer()
        return decode_response(api, version, answer[4:])[1]

    async def picture(self, damaged: Path) -> Picture:
        """Of the log that `damaged` belongs to, everything; much of all if it belongs to none."""
        found: Picture = {}
        await self._topics(found)
        folder = damaged.parent.name
        for topic in _TOPICS:
            step = _COARSE if not folder else 1 if folder == f"{topic}-0" else 0
            await self._log(found, topic, step)
        await self._coordinators(found)
        return found

    async def _topics(self, found: Picture) -> None:
        response = await self.call(MetadataRequest(topics=None), 12)
        for topic in response.topics:
            found[f"topic {topic.name}"] = encode_uuid(topic.topic_id), len(topic.partitions)
        for topic in TOPICS:
            resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
            (result,) = (await self.call(DescribeConfigsRequest(resources=[resource]), 4)).results
            found[f"configuration of {topic}"] = [(c.name, c.value) for c in result.configs]
        answer = await self.call(InitProducerIdRequest(transaction_timeout_ms=1000), 4)
        found["new producer id"] = _value_or_code(answer, answer.producer_id)

    async def _log(self, found: Picture, topic: str, step: int) -> None:
        start, end = await self._offset(topic, -2), await self._offset(topic, -1)
        found[f"start of {topic}"], found[f"end of {topic}"] = start, end
        if not step:
            return
        for epoch in range(_EPOCHS):
            found[f"end of epoch {epoch} of {topic}"] = await self._epoch_end(topic, epoch)
        found[f"producers of {topic}"] = await self._producers(topic)
        known = [at[1] for at in (start, end) if not isinstance(at, RefusedRead)]
        if len(known) == 2:
            for offset in range(known[0], known[1], step):
                found[f"{topic} from {offset}"] = await self._records(topic, offset, 1, 0)
                found[f"{topic} committed from {offset}"] = await self._committed(topic, offset)
            found[f"all of {topic}"] = whole = await self._records(topic, known[0], 1 << 20, 0)
            for time_ms in (-3, *_times(whole)[::step]):
                found[f"{topic} at time {time_ms}"] = await self._offset(topic, time_ms)

    async def _offset(self, topic: str, time_ms: int) -> Any:
        row = ListOffsetsPartition(partition_index=0, timestamp=time_ms)
        topics = [ListOffsetsTopic(name=topic, partitions=[row])]
        response = await self.call(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        (answer,) = response.topics[0].partitions
        return _value_or_code(answer, (answer.timestamp, answer.offset, answer.leader_epoch))

    async def _epoch_end(self, topic: str, epoch: int) -> Any:
        row = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[row])]
        response = await self.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)
        (answer,) = response.topics[0].partitions
        return _value_or_code(answer, (answer.leader_epoch, answer.end_offset))

    async def _producers(self, topic: str) -> Any:
        rows = [TopicRequest(name=topic, partition_indexes=[0])]
        response = await self.call(DescribeProducersRequest(topics=rows), 0)
        (answer,) = response.topics[0].partitions
        return _value_or_code(answer, sorted(map(repr, answer.active_producers)))

    async def _fetch(self, topic: str, offset: int, max_bytes: int, isolation: int) -> Any:
        row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )
        return (await self.call(request, 12)).responses[0].partitions[0]

    async def _records(self, topic: str, offset: int, max_bytes: int, isolation: int) -> Any:
        """The batches as they are sent; a wrong checksum is a finding of its own."""
        whole = bytearray()
        while True:
            answer = await self._fetch(topic, offset, max_bytes, isolation)
            if answer.error_code:
                return RefusedRead(answer.error_code)
            batches = list(iter_batches(bytes(answer.records)))
            if any(not check_crc(batch, 0, header) for header, batch in batches):
                return f"a wrong checksum was served at {offset}"
            whole += answer.records
            if max_bytes == 1 or not batches:
                return bytes(whole)
            offset = batches[-1][0].last_offset + 1

    async def _committed(self, topic: str, offset: int) -> Any:
        """Return the records of the first batches that a read_committed consumer sees."""
        answer = await self._fetch(topic, offset, 300, 1)
        if answer.error_code:
            return RefusedRead(answer.error_code)
        return list(_visible(answer))

    async def _coordinators(self, found: Picture) -> None:
        topics = [OffsetFetchRequestTopic(name="plain", partition_indexes=[0])]
        answer = await self.call(OffsetFetchRequest(group_id=GROUP, topics=topics), 7)
        rows = [row for topic in answer.topics for row in topic.partitions]
        found["committed offset"] = _value_or_code(answer, [row.committed_offset for row in rows])
        ids = list(TRANSACTIONAL_IDS)
        response = await self.call(DescribeTransactionsRequest(transactional_ids=ids), 0)
        for state in response.transaction_states:
            found[f"transactions of {state.transactional_id}"] = _value_or_code(state, repr(state))


def _value_or_code(answer: Any, what: Any) -> Any:
    return RefusedRead(answer.error_code) if answer.error_code else what


def _times(whole: Any) -> list[int]:
    """Of the batches, and shortly after."""
    if isinstance(whole, RefusedRead | str):
        return []
    found = {header.max_timestamp for header, _ in iter_batches(whole)}
    return sorted(found | {time_ms + 1 for time_ms in found})


def _visible(answer: Any) -> Iterator[tuple[int, bytes | None]]:
    aborted = {(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions}
    open_aborted: set[int] = set()
    for header, batch in iter_batches(bytes(answer.records)):
        ended = {entry for entry in aborted if entry[1] <= header.last_offset}
        open_aborted |= {producer for producer, _ in ended}
        aborted -= ended
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif header.producer_id not in open_aborted or not header.is_transactional:
            for record in decode_records(batch, header, 1 << 20):
                yield record.offset, record.value and bytes(record.value)
