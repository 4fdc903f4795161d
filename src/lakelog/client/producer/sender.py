"""The producer's thread: sends batches of the accumulator to brokers, and returns the responses.

The accumulator makes all decisions, under the producer's lock. This module waits: for brokers, for
deadlines, and for callers of the producer.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, error_code
from lakelog.client.cluster import Cluster
from lakelog.client.connection import Connection
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    UnreachableError,
    check,
    log_retry,
    pause_s,
)
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import EPOCH_MAX, PartitionQueue, ProducerBatch
from lakelog.client.producer.results import Verdict
from lakelog.client.view import ClusterView
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse

NEWEST_WITH_NAMES = 12
"""The last version of Produce with topic names; later versions have topic ids only."""

_ANSWER_SLACK_S = 2.0


class Answer(NamedTuple):
    batch: ProducerBatch
    code: ErrorCode
    base_offset: int = -1
    append_time_ms: int = -1
    message: str = ""


class _Sent(NamedTuple):
    batches: dict[tuple[str | bytes, int], ProducerBatch]
    deadline_s: float


class Link:
    """The producer's connection to one broker."""

    def __init__(self, connection: Connection, acks: int, timeout_s: float) -> None:
        self._connection = connection
        self._acks = acks
        self._timeout_s = timeout_s
        self._sent: deque[_Sent] = deque()
        self.not_before_s = 0.0
        """The end of the present throttling by the broker (KIP-219)."""

    def fileno(self) -> int:
        """Return the socket's file descriptor, for a selector."""
        return self._connection.fileno()

    @property
    def in_flight(self) -> int:
        """Number of requests without a response yet."""
        return len(self._sent)

    @property
    def deadline_s(self) -> float | None:
        """When the oldest request times out (seconds, monotonic clock)."""
        return self._sent[0].deadline_s if self._sent else None

    def send(
        self,
        batches: Sequence[ProducerBatch],
        view: ClusterView,
        now_s: float,
        transactional_id: str | None = None,
    ) -> None:
        """Send one request. After a `ConnectionLostError`, `close` resolves its batches.

        Raises `UnsupportedError` if the broker has no common version of Produce. `now_s`: monotonic
        clock.
        """
        has_ids = all(view.topics[batch.queue.topic].has_id for batch in batches)
        newest = None if has_ids else NEWEST_WITH_NAMES
        # Topic ids arrived with version 13 (KIP-516); older responses name topics.
        by_id = self._connection.version(ProduceRequest, newest) > NEWEST_WITH_NAMES
        topics: dict[str, TopicProduceData] = {}
        sent: dict[tuple[str | bytes, int], ProducerBatch] = {}
        for batch in batches:
            name, partition = batch.queue.topic, batch.queue.partition
            topic_id = view.topics[name].topic_id
            row = topics.setdefault(name, TopicProduceData(name=name, topic_id=topic_id))
            row.partition_data.append(PartitionProduceData(index=partition, records=batch.encode()))
            sent[topic_id if by_id else name, partition] = batch
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=self._acks,
            timeout_ms=int(self._timeout_s * 1000),
            topic_data=list(topics.values()),
        )
        # Before the send: if it fails, `close` returns these batches.
        self._sent.append(_Sent(sent, now_s + self._timeout_s + _ANSWER_SLACK_S))
        self._connection.send(request, newest=newest, answered=self._acks != 0)

    def take_unanswered(self) -> list[ProducerBatch]:
        """Return the batches of requests with acks=0, which get no response."""
        return list(self._sent.pop().batches.values())

    def receive(self, now_s: float) -> list[Answer]:
        """Return the response that has arrived. Raises `ClientError` if the connection failed.

        now_s: seconds, monotonic clock; a throttle time of the broker begins then (KIP-219).
        """
        message = self._connection.receive(self._timeout_s)[1]
        assert isinstance(message, ProduceResponse)
        batches = self._sent.popleft().batches
        if message.throttle_time_ms > 0:
            self.not_before_s = now_s + message.throttle_time_ms / 1000
        answers = []
        for topic in message.responses:
            for row in topic.partition_responses:
                batch = batches.pop((topic.name, row.index), None)
                batch = batch or batches.pop((topic.topic_id, row.index), None)
                if batch is not None:
                    answers.append(_answer(batch, row))
        lacking = "the response lacks the partition"
        # Each batch must get a result, or its `Delivery` would wait for ever.
        answers += [
            Answer(batch, ErrorCode.UNKNOWN_SERVER_ERROR, message=lacking)
            for batch in batches.values()
        ]
        return answers

    def close(self) -> list[ProducerBatch]:
        """Close the connection; return the batches in flight, whose outcome is unknown."""
        self._connection.close()
        batches = [batch for sent in self._sent for batch in sent.batches.values()]
        self._sent.clear()
        return batches


def _answer(batch: ProducerBatch, row: PartitionProduceResponse) -> Answer:
    message = row.error_message or ""
    for record in row.record_errors[:1]:
        message += f" (record {record.batch_index}: {record.batch_index_error_message})"
    return Answer(
        batch, error_code(row.error_code), row.base_offset, row.log_append_time_ms, message
    )


_VIEW_AGE_MAX_S = 300.0
_IDLE_S = 60.0
_NO_LEADER_PAUSE_S = 0.2
_NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class Sender:
    """The thread of a producer, which runs from `start` to `stop`."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        lock: threading.Condition,
        settings: Settings,
        *,
        on_view: Callable[[ClusterView], None],
        on_end: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = lock
        self._settings = settings
        self._transactional_id = settings.transactional_id
        self._on_view = on_view
        self._on_end = on_end
        self._links: dict[int, Link] = {}
        self._topics: set[str] = set()
        self._known_identity: tuple[int, int] | None = None
        self._failures = 0
        self._not_before_s = 0.0
        self._view_due_s = 0.0
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="lakelog-producer", daemon=True)
        self.is_sleeping = False
        """Whether the thread waits and needs a `wake`; guarded by the lock."""
        self.fatal: str | None = None
        """The error that stopped the producer."""

    def start(self) -> None:
        """Start the thread that sends batches."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread if it waits. The caller holds the lock."""
        self.is_sleeping = False
        # The selector watches the other end, so that a waiting thread returns at once.
        self._wake_out.send(b"\0")

    def begin_transaction(
        self, producer_id: int, producer_epoch: int, transactional_id: str | None = None
    ) -> None:
        """Use this producer id and epoch from now on, and the transactional id if there is one.

        The caller holds the lock, and there are no batches.
        """
        self._known_identity = producer_id, producer_epoch
        if transactional_id is not None:
            self._transactional_id = transactional_id
        self._accumulator.begin_transaction(producer_id, producer_epoch)

    def stop(self, timeout_s: float | None) -> None:
        """End the thread after its present step; fail the remaining batches.

        timeout_s: limit of the wait for the thread in seconds; `None` waits without a limit.
        """
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        reason = "the producer was closed"
        try:
            while not self._stopping and self.fatal is None:
                self._step()
            reason = self.fatal or reason
        except Exception as error:
            reason = f"the producer's thread failed: {error!r}"
            raise
        finally:
            with self._lock:
                self._stopping = True  # a thread that has ended needs no wake
                self.is_sleeping = False
                self.fatal = reason
                self._on_end()
                # Nothing will send these batches: callers of `flush` and `result` must not wait for
                # ever.
                self._accumulator.fail_all(ErrorCode.NETWORK_EXCEPTION, reason)
                self._lock.notify_all()
            for link in self._links.values():
                link.close()
            self._cluster.close()
            self._selector.close()
            self._wake_in.close()
            self._wake_out.close()

    def _step(self) -> None:
        now = time.monotonic()
        self._drop_late_links(now)
        with self._lock:
            if self._accumulator.expire(now):
                self._lock.notify_all()
            ready = self._accumulator.ready(now)
        # A failure of the whole cluster delays all partitions; a failure of one, only that
        # partition.
        if now >= self._not_before_s and (ready or now >= self._view_due_s):
            self._send_ready(ready, now)
        self._wait(time.monotonic())

    def _send_ready(self, ready: Sequence[PartitionQueue], now: float) -> None:
        try:
            self._prepare(ready, now)
            for node, queues in self._by_leader(ready).items():
                self._fill(self._link(node), queues, now)
            self._failures = 0
        except ClientError as error:
            if not error.retriable and not isinstance(error, ConnectionLostError):
                self.fatal = str(error)
                return
            # The leader may have changed: the next step asks for the view first.
            self._view_due_s = 0.0
            pause = pause_s(self._failures)
            log_retry(error, pause)
            self._not_before_s = time.monotonic() + pause
            self._failures += 1
            with self._lock:
                for queue in ready:
                    queue.postpone(self._not_before_s, str(error))

    def _prepare(self, ready: Sequence[PartitionQueue], now: float) -> None:
        """Refresh the view of these topics if it is old, and get missing producer ids."""
        topics = {queue.topic for queue in ready}
        if now >= self._view_due_s or not topics <= self._topics:
            self._topics |= topics
            self._on_view(self._cluster.refresh(self._topics))
            self._view_due_s = now + _VIEW_AGE_MAX_S
        if self._settings.is_idempotent:
            for queue in ready:
                # The epoch has 16 bits; a new producer id begins again at 0.
                if queue.producer_epoch > EPOCH_MAX:
                    self._known_identity = None
                    queue.producer_id = -1
                if queue.producer_id < 0:
                    queue.producer_id, queue.producer_epoch = self._identity()

    def _identity(self) -> tuple[int, int]:
        if self._known_identity is None:
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS
            )
            response = self._cluster.ask_any(request, InitProducerIdResponse)
            check(response.error_code, "no producer id")
            self._known_identity = response.producer_id, response.producer_epoch
        return self._known_identity

    def _by_leader(self, ready: Sequence[PartitionQueue]) -> dict[int, list[PartitionQueue]]:
        """Return the partitions by leader. Without a leader, a partition waits for a new view."""
        view = self._cluster.view
        by_leader: dict[int, list[PartitionQueue]] = defaultdict(list)
        for queue in ready:
            leader = view.leader(queue.topic, queue.partition)
            if leader is None:
                # A new view is the only way to learn the next leader.
                self._view_due_s = 0.0
                reason = view.errors.get(queue.topic, ErrorCode.LEADER_NOT_AVAILABLE).name
                with self._lock:
                    queue.postpone(time.monotonic() + _NO_LEADER_PAUSE_S, reason)
            else:
                by_leader[leader.node_id].append(queue)
        return by_leader

    def _link(self, node: int) -> Link:
        link = self._links.get(node)
        if link is None:
            connection = self._cluster.connect(node)
            settings = self._settings
            link = Link(connection, settings.acks, settings.request_timeout_s)
            self._links[node] = link
            self._selector.register(link, selectors.EVENT_READ, node)
        return link

    def _fill(self, link: Link, queues: list[PartitionQueue], now: float) -> None:
        """Send requests until the pipeline is full or no partition is ready."""
        node = next(node for node, other in self._links.items() if other is link)
        while link.in_flight < self._settings.max_in_flight and now >= link.not_before_s:
            batches = self._take(queues, now)
            if not batches:
                return
            try:
                link.send(batches, self._cluster.view, now, self._transactional_id)
            except ConnectionLostError as error:
                self._drop(node, str(error))
                raise UnreachableError.after(error) from error
            if self._settings.acks == 0:
                self._complete([Answer(b, ErrorCode.NONE) for b in link.take_unanswered()], now)

    def _take(self, queues: list[PartitionQueue], now: float) -> list[ProducerBatch]:
        """Return the next batch of each partition, as many as fit into one request."""
        batches: list[ProducerBatch] = []
        left = self._settings.max_request_bytes
        with self._lock:
            for queue in self._accumulator.still_ready(queues, now):
                size = queue.next_size
                if batches and size > left:
                    continue
                left -= size
                batches.append(self._accumulator.take(queue))
            # Rotate, so that a full request does not always leave out the same partitions.
            queues.append(queues.pop(0))
        return batches

    def _wait(self, now: float) -> None:
        """Wait for a response, for the next deadline, or for a caller that wakes this thread."""
        with self._lock:
            waits = [self._accumulator.wait_s(now), _IDLE_S]
            # Callers only wake a thread that waits. Partitions that they made ready since the last
            # check are therefore found here, under the lock.
            if any(self._can_send(queue, now) for queue in self._accumulator.ready(now)):
                waits.append(0.0)
            self.is_sleeping = not self._stopping
        waits += [self._not_before_s - now] if self._not_before_s > now else []
        for link in self._links.values():
            deadline = link.deadline_s
            waits += [deadline - now] if deadline is not None else []
            waits += [link.not_before_s - now] if link.not_before_s > now else []
        bounds = [wait for wait in waits if wait is not None]
        timeout = 0.0 if self._stopping else max(min(bounds), 0.0)
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._wake_in:
                self._wake_in.recv(4096)
            else:
                self._receive(key.data)
        with self._lock:
            self.is_sleeping = False

    def _can_send(self, queue: PartitionQueue, now: float) -> bool:
        """Return whether the batch of this ready partition can be sent at once."""
        if self._not_before_s > now:
            return False
        leader = self._cluster.view.leader(queue.topic, queue.partition)
        link = self._links.get(leader.node_id) if leader is not None else None
        return link is None or (
            link.in_flight < self._settings.max_in_flight and link.not_before_s <= now
        )

    def _receive(self, node: int) -> None:
        link = self._links.get(node)
        if link is None:
            return
        now = time.monotonic()
        try:
            answers = link.receive(now)
        except ClientError as error:
            self._drop(node, str(error))
            return
        self._complete(answers, now)

    def _complete(self, answers: Sequence[Answer], now: float) -> None:
        with self._lock:
            for batch, code, base_offset, append_time_ms, message in answers:
                verdict = self._accumulator.answer(
                    batch,
                    code,
                    now,
                    base_offset=base_offset,
                    append_time_ms=append_time_ms,
                    message=message,
                )
                if verdict is Verdict.FATAL:
                    self.fatal = batch.last_error
                elif verdict is not Verdict.DONE:
                    # An error may mean that the leader has moved.
                    self._view_due_s = 0.0
            self._lock.notify_all()

    def _drop_late_links(self, now: float) -> None:
        for node, link in list(self._links.items()):
            if link.deadline_s is not None and link.deadline_s <= now:
                # Responses come in order, so a late one blocks all that follow on this connection.
                self._drop(node, f"no answer within {self._settings.request_timeout_s:g} s")

    def _drop(self, node: int, reason: str) -> None:
        """Close a link; its batches return with an unknown outcome."""
        link = self._links.pop(node)
        self._selector.unregister(link)
        lost = link.close()
        code = ErrorCode.NETWORK_EXCEPTION
        self._complete([Answer(batch, code, message=reason) for batch in lost], time.monotonic())
        self._view_due_s = 0.0
