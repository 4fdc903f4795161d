"""Every scenario of this folder runs on each client library."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from clients.adapters.aio import Aio
from clients.adapters.api import Admin, Client
from clients.adapters.confluent import Confluent
from clients.adapters.kafka_python import KafkaPython
from clients.adapters.own import Own
from clients.adapters.patient import Patient

CLIENTS = (Confluent, KafkaPython, Aio, Own)


@pytest.fixture
def clients(bootstrap: str, leaders_move: bool) -> list[Client]:
    """One of each. Where leaders move, only an idempotent producer sends each record once."""
    if leaders_move:
        return [Patient(make(bootstrap, idempotent=True), bootstrap) for make in CLIENTS]
    return [make(bootstrap) for make in CLIENTS]


@pytest.fixture(params=range(len(CLIENTS)), ids=[make.name for make in CLIENTS])
def client(request: pytest.FixtureRequest, clients: list[Client]) -> Client:
    index: int = request.param
    return clients[index]


@pytest.fixture
def admin(client: Client) -> Iterator[Admin]:
    with closing(client.admin()) as admin:
        yield admin


@pytest.fixture
def name(client: Client) -> str:
    """A name for a topic or a group that no other test has used."""
    return f"{client.name}-{uuid.uuid4().hex[:8]}"
