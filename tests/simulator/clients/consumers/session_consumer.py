"""A consumer of several partitions at once, in a fetch session (KIP-227).

It requests only partitions whose position changed, and treats partitions that a response omits as
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.consumers.consumer import Consumer
from simulator.clients.consumers.reading import FETCH_VERSION
from simulator.clients.context import ClientContext
from simulator.network.connection import NoResponse

_MAX_BYTES = 1 << 20
_SESSION_GONE = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class SessionConsumer(Consumer):
    """`partitions` are of one topic. It sometimes forgets a partition, and adds it again later."""

    def __init__(self, context: ClientContext, name: str, partitions: list[Place]) -> None:
        super().__init__(context, name, partitions, committed=False)
        self._wanted = set(partitions)
        self._begin()

    def replaced(self) -> SessionConsumer:
        return SessionConsumer(self.context, self.next_name, self._places)

    def _begin(self) -> None:
        """Start another session: the next request is a full one."""
        self._session, self._epoch = 0, 0
        self._sent_positions: dict[Place, int] = {}
        self._starts = self.context.brokers.starts

    async def run(self) -> None:
        while not self.conditions.is_ending:
            await self.pause(0.0, 0.6)
            if self.rng.random() < 0.1:
                self._wanted ^= {self.some_place(self._places)}
            if self._wanted:
                await self._fetch_all()

    async def _fetch_all(self) -> None:
        known = self.history.partition
        due = {
            topic_partition
            for topic_partition in self._wanted
            if known(topic_partition).end > self._positions[topic_partition]
        }
        starts, cuts = (
            self.context.brokers.starts,
            sum(known(topic_partition).cuts for topic_partition in self._wanted),
        )
        try:
            answer = await self.connection.call(self._request(), FETCH_VERSION)
        except NoResponse:
            self._begin()
            return
        if answer.error_code in _SESSION_GONE and self.context.brokers.starts != self._starts:
            self._begin()
            return
        if answer.error_code:
            self.unexpected("Fetch in a session", answer.error_code)
            self._begin()
            return
        self.findings.counts["fetches in sessions"] += self._epoch > 0
        self._session, self._epoch = answer.session_id, self._epoch + 1 if answer.session_id else 0
        self._sent_positions = {
            topic_partition: self._positions[topic_partition] for topic_partition in self._wanted
        }
        found = {
            (topic.topic, partition.partition_index): partition
            for topic in answer.responses
            for partition in topic.partitions
        }
        self.findings.expect(
            Law.SESSION_FORGETS,
            found.keys() <= self._wanted,
            f"{self.name}: the response has forgotten partitions",
        )
        if (starts, cuts) == (
            self.context.brokers.starts,
            sum(known(p).cuts for p in self._wanted),
        ):
            left_out = sorted(due - found.keys())
            self.findings.expect(
                Law.SESSION_COMPLETE,
                not left_out,
                f"{self.name}: {left_out} are omitted, not unchanged",
            )
        for topic_partition, partition in found.items():
            await self.take(topic_partition, self._positions[topic_partition], partition)

    def _request(self) -> FetchRequest:
        changed = [
            partition
            for partition in self._wanted
            if self._sent_positions.get(partition) != self._positions[partition]
        ]
        gone = sorted(self._sent_positions.keys() - self._wanted)
        topic = self._places[0][0]
        return FetchRequest(
            max_wait_ms=self.rng.choice((0, 50, 500)),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=0,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=self._topics(sorted(changed)),
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, partitions=[index for _, index in gone])
            ]
            if gone
            else [],
        )

    def _topics(self, topic_partitions: Iterable[Place]) -> list[Any]:
        partitions = [
            FetchPartition(
                partition=topic_partition[1],
                fetch_offset=self._positions[topic_partition],
                partition_max_bytes=_MAX_BYTES,
            )
            for topic_partition in topic_partitions
        ]
        return [FetchTopic(topic=self._places[0][0], partitions=partitions)] if partitions else []
