"""Transactional producers are told that there are no transactions, by each library."""

from __future__ import annotations

import os
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import pytest

from clients.adapters.aio import LOOP


def _confluent(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "t"}
    confluent_kafka.Producer(settings).init_transactions(2)


def _kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
    try:
        producer.init_transactions()
    finally:
        producer.close()


def _aiokafka(bootstrap: str) -> None:
    async def start() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="t")
        try:
            await producer.start()
        finally:
            await producer.stop()

    LOOP.run(start())


@pytest.mark.parametrize("begin", [_confluent, _kafka_python, _aiokafka])
def test_the_reason_is_told(begin: Callable[[str], None], bootstrap: str) -> None:
    if "LAKELOG_TEST_BOOTSTRAP" in os.environ:
        pytest.skip("another broker is being tested")
    with pytest.raises(Exception, match=r"(?i)unsupported_?version|version not supported"):
        begin(bootstrap)
