"""Thousands of partitions keep neither other clients nor a signal waiting."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from broker_process import BrokerProcess
from lakelog.protocol.api import api_for
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.topics import CreatableTopic, CreateTopicsRequest
from waiting import eventually
from wire_client import WireClient, batch_of, described, fetch, produce

PARTITIONS = 1000
_MOMENTS = 10
"""This process may not get its turn in time to send a request or a signal."""
_TOPICS = [f"many-{moment}" for moment in range(_MOMENTS)]


def _is_served_while_others_create(broker: BrokerProcess, name: str) -> bool:
    """Sends requests while a topic is created; false if it was there by the last of them."""
    with WireClient(broker.bootstrap) as creator, WireClient(broker.bootstrap) as other:
        creator.socket.settimeout(120)
        topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        creator.send(CreateTopicsRequest(topics=[topic], timeout_ms=120_000), 7)
        for _ in range(20):
            other.call(ApiVersionsRequest(), 3)
        is_unseen: bool = described(other, name).partitions == []
        _, response = creator.receive(api_for(CreateTopicsRequest), 7)
        assert response.topics[0].error_code == 0
        for index in (0, 1, PARTITIONS - 1):
            answer = produce(other, name, batch_of(b"ready"), partition=index)
            assert answer.error_code == 0
        return is_unseen


def _is_stopped_while_starting(broker: BrokerProcess, clean: Path) -> bool:
    """Sends the signal as soon as logs are opened; false if all of them were by then."""
    broker.launch()
    eventually(lambda: not clean.exists(), what="the logs to be opened")
    os.kill(broker.pid, signal.SIGTERM)
    assert broker.wait() == 0
    assert clean.exists()
    is_stopped = "stopped before it was ready" in broker.log()
    assert is_stopped == ("ready on" not in broker.log())
    return is_stopped


def test_a_broker_of_many_partitions_is_always_there(tmp_path: Path) -> None:
    clean = tmp_path / "data" / ".kafka_cleanshutdown"
    with BrokerProcess(tmp_path / "data") as broker:
        creations = (_is_served_while_others_create(broker, name) for name in _TOPICS)
        assert any(creations), "it is made in one go, or is seen before it is there"
        broker.stop()
        moments = (_is_stopped_while_starting(broker, clean) for _ in range(_MOMENTS))
        assert any(moments), "a signal is heard only when it is ready"
        broker.start()
        with WireClient(broker.bootstrap) as wire:
            assert len(fetch(wire, _TOPICS[0], 0, partition=PARTITIONS - 1).records) > 0
