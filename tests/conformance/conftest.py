"""The two brokers that are compared: one of each for the whole folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_process import BrokerProcess
from conformance.pair import Pair
from kafka_process import KafkaProcess


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("conformance")
    with BrokerProcess(folder / "data") as ours, KafkaProcess(folder / "kafka") as kafka:
        yield Pair(ours.bootstrap, kafka.bootstrap)
