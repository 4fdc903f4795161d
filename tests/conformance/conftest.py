"""The two brokers that are compared: one of each for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from broker_process import BrokerProcess
from kafka_process import KafkaProcess


class Pair(NamedTuple):
    """host:port of this broker and of Apache Kafka."""

    ours: str
    kafka: str


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("conformance")
    with BrokerProcess(folder / "data") as ours, KafkaProcess(folder / "kafka") as kafka:
        yield Pair(ours.bootstrap, kafka.bootstrap)
