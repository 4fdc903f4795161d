"""The pages of the HTTP endpoint: metrics, health, version, and current requests.

/metrics/detail has lines for each partition, and the names of other exporters. A watcher gets
requests as they are answered; without one nothing is kept.
"""

from __future__ import annotations

import asyncio
import json
import platform
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from http import HTTPStatus

from lakelog import __version__
from lakelog.metrics import CONTENT_TYPE, Sample, exposed
from lakelog.protocol.registry import APIS
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Clock
from lakelog.server.monitoring.collect import cluster_numbers, overview
from lakelog.server.monitoring.families import CLUSTER_ALIASES, COMPAT, DETAIL, ELECTION_COUNT
from lakelog.server.monitoring.http import JSON, Page, Request, Response
from lakelog.server.monitoring.readiness import Check
from lakelog.server.monitoring.sources import Lag, Sources
from lakelog.server.requests.metrics import CLIENT_ID_CHARS_MAX, RequestMetrics, RequestNote

_OF_PARTITIONS: dict[str, Callable[[Partition], int]] = {
    "partition_log_start_offset": lambda p: p.log.log_start_offset,
    "partition_log_end_offset": lambda p: p.log.log_end_offset,
    "partition_high_watermark": lambda p: p.watermark.offset,
    "partition_last_stable_offset": lambda p: p.last_stable_offset,
    "partition_leader_epoch": lambda p: p.leader_epoch,
    "partition_log_size_bytes": lambda p: p.log.size,
    "partition_segments": lambda p: len(p.log.segments),
    "partition_producers": lambda p: len(p.log.producers),
    "partition_produce_bytes_total": lambda p: p.written.bytes,
    "partition_fetch_bytes_total": lambda p: p.fetched_bytes,
    "partition_records_total": lambda p: p.written.records,
}


def detail(sources: Sources) -> Iterator[str]:
    """Yield a family for each number, with a line for each partition."""
    partitions = sorted(sources.broker.partitions, key=lambda p: (p.topic, p.index))
    for name, number in _OF_PARTITIONS.items():
        samples: Iterator[Sample] = ((_topic_partition(p), number(p)) for p in partitions)
        yield from exposed(DETAIL[name], samples)
    lags = _lags(sources)
    committed = ((_group_place(lag), lag.committed) for lag in lags)
    yield from exposed(DETAIL["group_committed_offset"], committed)
    records = ((_group_place(lag), lag.records) for lag in lags)
    yield from exposed(DETAIL["group_partition_lag_records"], records)
    seconds = ((_group_place(lag), lag.seconds) for lag in lags if lag.seconds is not None)
    yield from exposed(DETAIL["group_partition_lag_seconds"], seconds)


def compat(sources: Sources) -> Iterator[str]:
    """Yield the metrics of this broker under the names of exporters for Kafka."""
    broker = sources.broker
    serving = len(broker.image.brokers) - len(broker.image.fenced)
    yield from exposed(COMPAT["kafka_brokers"], [((), serving)])
    yield from _compat_topics(sources)
    numbers = cluster_numbers(sources)
    for alias, name in CLUSTER_ALIASES.items():
        yield from exposed(COMPAT[alias], [((), numbers[name])])
    elections = broker.controller.elections
    elections.fold()
    yield from exposed(COMPAT[ELECTION_COUNT], [((), elections.count)])
    members = sorted(((s.group_id,), s.members) for s in broker.groups.admin.progress())
    yield from exposed(COMPAT["kafka_consumergroup_members"], members)
    lags = _lags(sources)
    committed = ((_group_place(lag), lag.committed) for lag in lags)
    yield from exposed(COMPAT["kafka_consumergroup_current_offset"], committed)
    records = ((_group_place(lag), lag.records) for lag in lags)
    yield from exposed(COMPAT["kafka_consumergroup_lag"], records)
    cluster = broker.cluster_id
    seconds = (
        ((cluster, *_group_place(lag)), lag.seconds) for lag in lags if lag.seconds is not None
    )
    yield from exposed(COMPAT["kafka_consumergroup_group_lag_seconds"], seconds)


def _compat_topics(sources: Sources) -> Iterator[str]:
    topics = sorted(sources.broker.image.topics, key=lambda topic: topic.name)
    counts: Iterator[Sample] = (((topic.name,), len(topic.partitions)) for topic in topics)
    yield from exposed(COMPAT["kafka_topic_partitions"], counts)
    here = sorted(sources.broker.partitions, key=lambda p: (p.topic, p.index))
    ends: Iterator[Sample] = ((_topic_partition(p), p.watermark.offset) for p in here)
    yield from exposed(COMPAT["kafka_topic_partition_current_offset"], ends)
    starts: Iterator[Sample] = ((_topic_partition(p), p.log.log_start_offset) for p in here)
    yield from exposed(COMPAT["kafka_topic_partition_oldest_offset"], starts)
    every = [(t.name, p) for t in topics for _, p in sorted(t.partitions.items())]
    in_sync: Iterator[Sample] = (
        ((name, str(image.partition)), len(image.isr)) for name, image in every
    )
    yield from exposed(COMPAT["kafka_topic_partition_in_sync_replica"], in_sync)
    behind: Iterator[Sample] = (
        ((name, str(image.partition)), int(len(image.isr) < len(image.replicas)))
        for name, image in every
    )
    yield from exposed(COMPAT["kafka_topic_partition_under_replicated_partition"], behind)


def _lags(sources: Sources) -> list[Lag]:
    broker = sources.broker
    standings = broker.groups.admin.progress()
    return sorted(
        sources.lag_clock.lags(standings, broker.partitions, broker.clock.monotonic()),
        key=lambda lag: (lag.group, lag.topic, lag.partition),
    )


def _topic_partition(partition: Partition) -> tuple[str, str]:
    return partition.topic, str(partition.index)


def _group_place(lag: Lag) -> tuple[str, str, str]:
    return lag.group, lag.topic, str(lag.partition)


TAILS_MAX = 4
_KEPT_MAX = 10_000
_LINES_AT_ONCE = 500


class RequestTail:
    """A watcher, from the first of `lines` until they are closed.

    A watcher that reads more slowly than requests are answered misses some; a line has their
    number. Empty `api` and `client_id` stand for any.
    """

    def __init__(self, clock: Clock, *, api: str = "", client_id: str = "") -> None:
        self._clock = clock
        self._api = api.lower()
        self._client_id = client_id[:CLIENT_ID_CHARS_MAX]
        self._lines: deque[bytes] = deque()
        self._missed = 0
        self._woken = asyncio.Event()

    async def lines(self, requests: RequestMetrics) -> AsyncGenerator[bytes, None]:
        """Yield lines of JSON as bytes, several at once.

        The first line shows that the watcher is registered. The generator ends when it is closed.
        """
        leave = requests.watch(self._note)
        try:
            yield b'{"watching": true}\n'
            while True:
                await self._woken.wait()
                count = min(len(self._lines), _LINES_AT_ONCE)
                lines = [self._lines.popleft() for _ in range(count)]
                if self._missed:
                    lines.append(json.dumps({"missed": self._missed}).encode() + b"\n")
                    self._missed = 0
                if not self._lines:
                    self._woken.clear()
                yield b"".join(lines)
        finally:
            leave()

    def _note(self, note: RequestNote) -> None:
        if self._api and note.api.lower() != self._api:
            return
        if self._client_id and note.client_id != self._client_id:
            return
        if len(self._lines) >= _KEPT_MAX:
            self._missed += 1
            return
        line = {"time_ms": self._clock.wall_ms(), **note._asdict()}
        self._lines.append(json.dumps(line).encode() + b"\n")
        self._woken.set()


_LINES_PER_ITERATION = 500
"""About a millisecond of work."""


class Pages:
    """The pages of one broker; `checks` returns the current checks of readiness."""

    def __init__(self, sources: Sources, checks: Callable[[], list[Check]]) -> None:
        self._sources = sources
        self._checks = checks
        self._tails = 0

    def by_path(self) -> Mapping[str, Page]:
        """Return the pages by path (docs/monitoring.md)."""
        return {
            "/metrics": self._metrics,
            "/metrics/detail": self._detail,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/version": self._version,
            "/debug/requests": self._debug_requests,
        }

    async def _metrics(self, _: Request) -> Response:
        text = await _text(overview(self._sources, self._checks()))
        if self._sources.broker.config.get_bool("lakelog.metrics.compat"):
            text += await _text(compat(self._sources))
        return Response(text, CONTENT_TYPE)

    async def _detail(self, _: Request) -> Response:
        return Response(await _text(detail(self._sources)), CONTENT_TYPE)

    async def _healthz(self, _: Request) -> Response:
        """Answer, which shows that the loop runs."""
        return _json({"status": "ok"})

    async def _readyz(self, request: Request) -> Response:
        checks = self._checks()
        failing = [_described(check) for check in checks if not check.passes]
        answer: dict[str, object] = {
            "status": "not ready" if failing else "ready",
            "failing": failing,
        }
        if "verbose" in request.query:
            answer["checks"] = [{"passes": check.passes, **_described(check)} for check in checks]
        return _json(answer, HTTPStatus.SERVICE_UNAVAILABLE if failing else HTTPStatus.OK)

    async def _version(self, _: Request) -> Response:
        broker = self._sources.broker
        return _json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "node_id": broker.node_id,
                "cluster_id": broker.cluster_id or None,
            }
        )

    async def _debug_requests(self, request: Request) -> Response:
        """Send requests as they are answered; they name clients, so only to this host."""
        if not request.is_local:
            text = b"this page is available only from the host of the broker\n"
            return Response(text, status=HTTPStatus.FORBIDDEN)
        api, client = request.query.get("api", ""), request.query.get("client", "")
        if api and api.lower() not in {entry.name.lower() for entry in APIS.values()}:
            text = f"unknown API {api!r}; expected a name such as Produce\n".encode()
            return Response(text, status=HTTPStatus.BAD_REQUEST)
        if self._tails >= TAILS_MAX:
            text = f"{TAILS_MAX} clients are already watching; try again later\n".encode()
            return Response(text, status=HTTPStatus.TOO_MANY_REQUESTS)
        tail = RequestTail(self._sources.broker.clock, api=api, client_id=client)
        return Response(b"", "application/x-ndjson", parts=self._lines(tail))

    async def _lines(self, tail: RequestTail) -> AsyncGenerator[bytes, None]:
        self._tails += 1
        lines = tail.lines(self._sources.broker.requests)
        try:
            async for part in lines:
                yield part
        finally:
            self._tails -= 1
            await lines.aclose()


async def _text(lines: Iterator[str]) -> bytes:
    """Join the lines; the loop runs after every few hundred."""
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        parts.append(line)
        if number % _LINES_PER_ITERATION == 0:
            await asyncio.sleep(0)
    return "\n".join([*parts, ""]).encode()


def _json(answer: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(json.dumps(answer).encode() + b"\n", JSON, status)


def _described(check: Check) -> dict[str, str]:
    return {"check": check.name, "reason": check.reason}
