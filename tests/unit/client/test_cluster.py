"""Connections, leaders and coordinators of a cluster; which requests are sent again."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import NOTICE_S, Cluster, Startup
from lakelog.client.connection import Connection
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    NotStartedError,
    OutcomeUnknownError,
    PartitionNotFoundError,
    TopicNotFoundError,
    UnreachableError,
)
from lakelog.network_client import NetworkClient
from lakelog.protocol.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from lakelog.protocol.metadata import MetadataRequest
from scripted_broker import ScriptedBroker


def test_a_missing_topic_is_reported_with_a_similar_name(cluster: Cluster) -> None:
    with pytest.raises(TopicNotFoundError, match="'order' does not exist") as error:
        cluster.topic("order")
    assert error.value.hint == "Did you mean 'orders'?"


def test_a_topic_that_the_broker_creates_is_awaited(broker: ScriptedBroker) -> None:
    def create(request: MetadataRequest) -> object:
        response = broker.metadata(request)
        broker.topics["new"] = 3
        return response

    broker.on(MetadataRequest, create, broker.metadata)  # type: ignore[arg-type]
    with Cluster(broker.address, timeout_s=10.0, allow_auto_create=True) as cluster:
        assert len(cluster.topic("new").partitions) == 3


def test_a_leader_that_was_elected_meanwhile_is_asked_for(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.leaders["orders", 0] = -1
    with pytest.raises(ClientError) as error:
        cluster.leader("orders", 0)
    assert error.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert error.value.retriable
    broker.leaders.clear()
    assert cluster.leader("orders", 0).node_id == 1


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_does_not_exist_is_final(cluster: Cluster, partition: int) -> None:
    with pytest.raises(PartitionNotFoundError, match="partitions 0 to 1"):
        cluster.leader("orders", partition)


def test_a_lost_request_is_repeated_only_if_that_is_safe(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    cluster.refresh()
    broker.on(ListGroupsRequest, None, ListGroupsResponse())
    with pytest.raises(OutcomeUnknownError, match="listing groups may or may not") as error:
        cluster.change(ListGroupsRequest(), ListGroupsResponse, "listing groups")
    assert error.value.code is ErrorCode.NETWORK_EXCEPTION
    assert len(broker.asked(ListGroupsRequest)) == 1
    broker.on(ListGroupsRequest, None, ListGroupsResponse())
    cluster.ask_any(ListGroupsRequest(), ListGroupsResponse)
    assert len(broker.asked(ListGroupsRequest)) == 3


def test_a_change_that_was_never_sent_was_not_made() -> None:
    with ScriptedBroker() as broker:
        address = broker.address
    with Cluster(address, timeout_s=1.0) as cluster, pytest.raises(UnreachableError):
        cluster.change(ListGroupsRequest(), ListGroupsResponse, "listing groups")


def test_retries_end_at_the_limit_with_the_last_error(cluster: Cluster) -> None:
    errors = iter(range(1000))

    def work() -> None:
        raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, f"error {next(errors)}")

    with pytest.raises(ClientError, match=r"error [1-9]"), cluster.hurrying(0.05):
        cluster.retrying(work)


@pytest.mark.parametrize(
    "error", [ConnectionLostError("reset"), ClientError(ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
def test_a_request_whose_outcome_is_unknown_or_final_is_not_repeated(
    cluster: Cluster, error: ClientError
) -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)):
        cluster.retrying(work)
    assert len(calls) == 1


def test_a_coordinator_is_found_once_and_again_after_a_lost_connection(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    broker.on(HeartbeatRequest, HeartbeatResponse(), None, HeartbeatResponse())

    def beat() -> None:
        cluster.ask_coordinator("billing", HeartbeatRequest(group_id="billing"), HeartbeatResponse)

    beat()
    with pytest.raises(UnreachableError) as error:
        beat()
    assert error.value.retriable
    assert len(broker.asked(FindCoordinatorRequest)) == 1
    beat()
    assert len(broker.asked(FindCoordinatorRequest)) == 2


def test_a_coordinator_outside_of_the_cluster_is_not_available(
    broker: ScriptedBroker, cluster: Cluster
) -> None:
    rows = [Coordinator(key="billing", node_id=9, host="127.0.0.1", port=1)]
    broker.on(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=rows))
    with pytest.raises(ClientError) as error:
        cluster.coordinator("billing")
    assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_shorter_limit_holds_within_its_block_only(cluster: Cluster) -> None:
    with cluster.hurrying(0.5):
        assert (cluster.timeout_s, cluster.request_timeout_s) == (0.5, 0.5)
        with cluster.hurrying(5.0):
            assert cluster.timeout_s == 0.5, "a block never extends the limit"
    assert (cluster.timeout_s, cluster.request_timeout_s) == (10.0, 30.0)


def test_the_next_bootstrap_address_is_used_if_the_first_refuses(broker: ScriptedBroker) -> None:
    with ScriptedBroker() as gone:
        dead = gone.address
    with Cluster(f"{dead},{broker.address}", timeout_s=10.0) as cluster:
        assert cluster.refresh().cluster_id == "c"


def test_only_the_first_operation_waits_for_a_broker_that_starts() -> None:
    with ScriptedBroker() as gone:
        dead = gone.address
    with Cluster(dead, startup=Startup(0.0, lambda: None)) as cluster:
        with pytest.raises(NotStartedError):
            cluster.refresh()
        with pytest.raises(UnreachableError) as raised:
            cluster.refresh()
        assert raised.value.retriable, "a later failure is retried like any other"


class Broker:
    """Refuses connections until a time on a clock that only sleeping moves."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ready_s: float, *, timed_out: bool = False
    ) -> None:
        self.now = 100.0
        self.attempts = 0
        self._ready = self.now + ready_s
        self._timed_out = timed_out
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def connect(self) -> Connection:
        self.attempts += 1
        if self.now < self._ready:
            raise UnreachableError("b:9092: refused", timed_out=self._timed_out)
        sock, peer = socket.socketpair()
        peer.close()
        return Connection(sock, NetworkClient("test", "1"), 1 << 20, "b:9092")


@pytest.fixture
def waits() -> list[str]:
    return []


@pytest.fixture
def on_wait(waits: list[str]) -> Callable[[], object]:
    return lambda: waits.append("waiting")


@pytest.mark.parametrize(("ready_s", "noticed"), [(0.0, 0), (NOTICE_S / 2, 0), (3.0, 1)])
def test_the_first_connection_waits_for_a_broker_that_starts(
    monkeypatch: pytest.MonkeyPatch,
    waits: list[str],
    on_wait: Callable[[], object],
    ready_s: float,
    noticed: int,
) -> None:
    broker = Broker(monkeypatch, ready_s)
    Startup(5.0, on_wait).connect(broker.connect).close()
    assert ready_s <= broker.now - 100.0 < ready_s + 1.0
    assert len(waits) == noticed


def test_a_broker_that_does_not_start_is_awaited_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, on_wait: Callable[[], object]
) -> None:
    broker = Broker(monkeypatch, 60.0)
    with pytest.raises(NotStartedError) as raised:
        Startup(5.0, on_wait).connect(broker.connect)
    assert not raised.value.retriable
    assert 4.0 <= broker.now - 100.0 < 5.0


def test_a_connection_that_times_out_is_not_tried_twice(
    monkeypatch: pytest.MonkeyPatch, on_wait: Callable[[], object]
) -> None:
    broker = Broker(monkeypatch, 60.0, timed_out=True)
    with pytest.raises(NotStartedError) as raised:
        Startup(5.0, on_wait).connect(broker.connect)
    assert raised.value.is_timeout
    assert broker.attempts == 1
