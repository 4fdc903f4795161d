"""Connections and topics for tests that speak the protocol themselves."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from wire_client import WireClient, create_topic


@pytest.fixture
def wire(bootstrap: str) -> Iterator[WireClient]:
    with WireClient(bootstrap) as client:
        yield client


@pytest.fixture
def unused() -> str:
    """The name of a topic that does not exist."""
    return f"wire-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(wire: WireClient, unused: str) -> str:
    """An empty topic of one partition."""
    create_topic(wire, unused)
    return unused


@pytest.fixture
def lakelog_only() -> None:
    """For behaviour that Apache Kafka does not have."""
    if "LAKELOG_TEST_BOOTSTRAP" in os.environ:
        pytest.skip("another broker is being tested")
