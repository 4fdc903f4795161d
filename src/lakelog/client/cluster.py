"""Connections to the brokers of a cluster, its leaders and its coordinators.

A `Cluster` belongs to one thread. It retries until a time limit, but never a request that the
broker may have executed although no answer came. `Startup` is the wait for brokers that may still
be starting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode
from lakelog.client.connection import Connection
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    NotStartedError,
    PartitionNotFoundError,
    TopicNotFoundError,
    UnreachableError,
    check,
    log_retry,
    outcome_unknown,
    pauses,
    refused,
)
from lakelog.client.view import Address, Broker, ClusterView, Topic, parse_bootstrap
from lakelog.network_client import MAX_RESPONSE_BYTES
from lakelog.protocol.groups import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from lakelog.wire.schema import Message

NOTICE_S = 0.5
"""Seconds after which `on_wait` is called."""


class Startup:
    """Retries the first connection to any broker, so that no request is sent only to probe.

    limit_s: how long refused connections are retried. on_wait: is called once, after `NOTICE_S`.
    """

    def __init__(self, limit_s: float, on_wait: Callable[[], object]) -> None:
        self._limit_s = limit_s
        self._on_wait: Callable[[], object] | None = on_wait

    def connect(self, connect: Callable[[], Connection]) -> Connection:
        """Return `connect()`; repeat it with growing pauses while connections are refused.

        A connection that times out is not retried: something listens there and does not respond.
        Raises `NotStartedError` after `limit_s`.
        """
        since = time.monotonic()
        for pause in pauses():
            try:
                return connect()
            except UnreachableError as error:
                elapsed_s = time.monotonic() - since
                if error.is_timeout or elapsed_s + pause >= self._limit_s:
                    raise NotStartedError(error.message, timed_out=error.is_timeout) from error
                log_retry(error, pause)
            if elapsed_s >= NOTICE_S and self._on_wait is not None:
                self._on_wait()
                self._on_wait = None
            time.sleep(pause)
        raise AssertionError("pauses never end")


T = TypeVar("T")
R = TypeVar("R", bound=Message)

_BOOTSTRAP = -1
_CREATION_S = 5.0
GROUP, TRANSACTION = 0, 1
"""Types of coordinator keys: consumer group, transactional id."""
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Cluster(Closeable):
    """Finds brokers and sends them requests.

    timeout_s: limit of an operation with all its retries. request_timeout_s: limit of one request;
    callers pass another limit for requests that a broker may delay (Fetch, JoinGroup).
    max_response_bytes: larger responses end the connection. allow_auto_create: let the broker
    create topics that do not exist. startup: retries the first connection. Raises `AddressError`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lakelog",
        timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        allow_auto_create: bool = False,
        startup: Startup | None = None,
    ) -> None:
        self._startup = startup
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._allow_auto_create = allow_auto_create
        self._max_response_bytes = max_response_bytes
        self._connections: dict[int, Connection] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.timeout_s = timeout_s
        self.request_timeout_s = request_timeout_s
        self.view = ClusterView()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @contextmanager
    def hurrying(self, timeout_s: float) -> Iterator[None]:
        """Limit operations, connections and requests within the block to `timeout_s`.

        timeout_s: seconds. Limits that are shorter already stay.
        """
        before = self.timeout_s, self.request_timeout_s
        self.timeout_s, self.request_timeout_s = (min(limit, timeout_s) for limit in before)
        try:
            yield
        finally:
            self.timeout_s, self.request_timeout_s = before

    def refresh(self, topics: Iterable[str] | None = None) -> ClusterView:
        """Ask any broker about `topics`, or about all topics; return the new view.

        Topics that the broker does not know are in the view's `errors`. Raises `UnreachableError`,
        or `ClientError` for an error of the whole request.
        """
        names = None if topics is None else list(topics)
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._allow_auto_create,
        )
        response = self.ask_any(request, MetadataResponse)
        check(response.error_code)
        self.view = self.view.after(response, complete=names is None)
        return self.view

    def topic(self, name: str) -> Topic:
        """Return a topic; ask for it if it is unknown.

        If the broker may create the topic, wait up to 5 seconds for that. Raises
        `TopicNotFoundError`. Raises `ClientError` if no broker answers within `timeout_s`.
        """
        deadline = time.monotonic() + _CREATION_S

        def work() -> Topic:
            try:
                return self._find_topic(name)
            except TopicNotFoundError as error:
                if not self._allow_auto_create or time.monotonic() >= deadline:
                    raise
                raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, error.message) from error

        return self.retrying(work)

    def leader(self, topic: str, partition: int) -> Broker:
        """Return the leader of a partition; ask for it if it is unknown.

        Raises `TopicNotFoundError`, `PartitionNotFoundError`, and LEADER_NOT_AVAILABLE if the
        partition has no leader at present.
        """
        self._find_topic(topic)
        if self.view.leader(topic, partition) is None:
            self.refresh([topic])
        topic_view = self._find_topic(topic)
        if not 0 <= partition < len(topic_view.partitions):
            raise PartitionNotFoundError(topic, partition, len(topic_view.partitions))
        broker = self.view.leader(topic, partition)
        if broker is None:
            raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return broker

    def coordinator(self, key: str, key_type: int = GROUP) -> Broker:
        """Return the coordinator of a group or transactional id; ask for it if it is unknown.

        Raises `UnreachableError`, and `ClientError`, such as COORDINATOR_NOT_AVAILABLE.
        """
        node = self._coordinators.get((key_type, key))
        if node is None or node not in self.view.brokers:
            node = self._find_coordinator(key, key_type)
            self._coordinators[key_type, key] = node
        return self.view.brokers[node]

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Ask for the coordinator again at its next use."""
        self._coordinators.pop((key_type, key), None)

    def retrying(self, work: Callable[[], T]) -> T:
        """Return `work()`; repeat it with growing pauses while it raises retriable errors.

        `ConnectionLostError` is not retried: only the caller knows whether that is safe. Raises the
        last error after the time limit of an operation.
        """
        deadline = time.monotonic() + self.timeout_s
        for pause in pauses():
            try:
                return work()
            except ClientError as error:
                # A pause beyond the deadline would only delay the error.
                if not error.retriable or time.monotonic() + pause >= deadline:
                    raise
                log_retry(error, pause)
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def ask_any(self, request: Message, kind: type[R]) -> R:
        """Ask brokers until one answers; only for requests that are safe to repeat.

        Raises `UnreachableError`.
        """
        failure: ClientError | None = None
        # Open connections first, then known brokers; the bootstrap addresses may be outdated.
        for node in [*self._connections, *self.view.brokers, _BOOTSTRAP]:
            try:
                return self.ask(node, request, kind)
            except NotStartedError:
                raise
            except (UnreachableError, ConnectionLostError) as error:
                failure = error
        assert failure is not None
        raise UnreachableError.after(failure) from failure

    def change(self, request: Message, kind: type[R], what: str) -> R:
        """Send a request that must not be repeated to one broker; `what` names it in errors.

        Raises `UnreachableError` if it was not sent, and `OutcomeUnknownError` if no response came.
        """
        failure: ClientError | None = None
        for node in dict.fromkeys([*self._connections, *self.view.brokers, _BOOTSTRAP]):
            try:
                # Connecting sends nothing that changes state, so another broker may be tried after
                # it.
                self.connection(node)
            except UnreachableError as error:
                failure = error
                continue
            try:
                return self.ask(node, request, kind)
            except ConnectionLostError as error:
                raise outcome_unknown(what, error) from error
        assert failure is not None
        raise failure

    def ask_coordinator(
        self,
        key: str,
        request: Message,
        kind: type[R],
        *,
        key_type: int = GROUP,
        newest: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask the coordinator of a group or transactional id.

        Only for requests that are safe to repeat: a lost connection raises `UnreachableError`,
        which is retriable. timeout_s: seconds.
        """
        node = self.coordinator(key, key_type).node_id
        try:
            return self.ask(node, request, kind, newest=newest, timeout_s=timeout_s)
        except (ConnectionLostError, UnreachableError) as error:
            self.forget_coordinator(key, key_type)
            raise UnreachableError.after(error) from error

    def retrying_coordinator(self, key: str, work: Callable[[], T], key_type: int = GROUP) -> T:
        """Return `retrying(work)`; ask for the coordinator again after each failure.

        Raises the last error, as `retrying`.
        """

        def attempt() -> T:
            try:
                return work()
            except ClientError as error:
                if error.retriable:
                    self.forget_coordinator(key, key_type)
                raise

        return self.retrying(attempt)

    def ask(
        self,
        node_id: int,
        request: Message,
        kind: type[R],
        *,
        newest: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask one broker; connect to it if necessary.

        newest: the newest version to use. Raises `UnreachableError` and `ConnectionLostError`.
        timeout_s: seconds, by default `request_timeout_s`.
        """
        limit = self.request_timeout_s if timeout_s is None else timeout_s
        connection = self.connection(node_id)
        response = connection.request(request, newest=newest, timeout_s=limit)
        assert isinstance(response, kind)
        return response

    def connection(self, node_id: int) -> Connection:
        """Return the open connection to a broker of the view. Raises `UnreachableError`."""
        connection = self._connections.get(node_id)
        if connection is not None:
            if connection.is_open and not connection.is_stale:
                return connection
            connection.close()
            del self._connections[node_id]
        connection = self._connections[node_id] = self.connect(node_id)
        return connection

    def connect(self, node_id: int) -> Connection:
        """Return a new connection, which the caller closes. Raises `UnreachableError`."""
        if node_id == _BOOTSTRAP:
            return self._connect_bootstrap()
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise UnreachableError(f"broker {node_id} is not in the cluster")
        return self._connect_any([broker.address])

    def _connect_bootstrap(self) -> Connection:
        # Brokers start once: a later operation retries for its own time, as in any client.
        startup, self._startup = self._startup, None
        if startup is None:
            return self._connect_any(self._bootstrap)
        return startup.connect(lambda: self._connect_any(self._bootstrap))

    def _connect_any(self, addresses: list[Address]) -> Connection:
        failure: ClientError | None = None
        for address in addresses:
            try:
                return Connection.open(
                    address,
                    client_id=self._client_id,
                    timeout_s=min(self.request_timeout_s, self.timeout_s),
                    max_response_bytes=self._max_response_bytes,
                )
            except (UnreachableError, ConnectionLostError) as error:
                failure = UnreachableError.after(error)
        assert failure is not None
        raise failure

    def _find_topic(self, name: str) -> Topic:
        topic = self.view.topics.get(name)
        if topic is None:
            topic = self.refresh([name]).topics.get(name)
        if topic is None:
            code = self.view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code not in _MISSING:
                raise refused(code, f"topic {name!r}")
            raise TopicNotFoundError(name, hint=self._similar(name))
        return topic

    def _similar(self, name: str) -> str:
        import difflib

        close = difflib.get_close_matches(name, self.refresh().topics, n=1)
        return f"Did you mean {close[0]!r}?" if close else ""

    def _find_coordinator(self, key: str, key_type: int) -> int:
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        response = self.ask_any(request, FindCoordinatorResponse)
        if response.coordinators:
            coordinator = response.coordinators[0]
            check(coordinator.error_code, said=coordinator.error_message)
            broker = Broker(coordinator.node_id, coordinator.host, coordinator.port)
        else:
            check(response.error_code, said=response.error_message)
            broker = Broker(response.node_id, response.host, response.port)
        if broker.node_id not in self.view.brokers:
            # The address is taken from the view, so that all connections to a broker are shared.
            self.refresh([])
        if broker.node_id not in self.view.brokers:
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, repr(key))
        return broker.node_id
