"""The same bad request gets the same error code from lakelog and from Apache Kafka 4.3.1.

Each case is sent in the oldest and the newest version that both advertise, with `--every-version`
(`make conformance`) in all of them. Cases are rows of the `*_cases` modules; a
difference stands in its row with the reason, and fails once it is gone.
"""

from __future__ import annotations

import pytest

from client_apis import CLIENT_APIS
from conformance import (
    asking,
    config_cases,
    consumer_group_cases,
    group_cases,
    record_cases,
    security_cases,
    topic_cases,
    transaction_cases,
)
from conformance.case import Case
from conformance.pair import Pair
from conformance.world import build_world
from lakelog.protocol.registry import APIS
from wire_client import WireClient

pytestmark = pytest.mark.java

MODULES = (
    topic_cases,
    config_cases,
    record_cases,
    group_cases,
    consumer_group_cases,
    transaction_cases,
    security_cases,
)
_SERVED = {api.name for api in CLIENT_APIS.values()}
"""Kafka serves the APIs between brokers on listeners of controllers alone."""
CASES = [
    case
    for module in MODULES
    for case in module.CASES
    if {case.api, case.needs or case.api} <= _SERVED
]


class Brokers:
    """Outcomes by case and version, of this broker and of Kafka."""

    def __init__(self, pair: Pair, *, every: bool) -> None:
        self._every = every
        self.addresses = pair
        self.ranges = asking.common(*map(asking.advertised, self.addresses))
        self.ours, self.kafka = [self._ask(address) for address in self.addresses]

    def _ask(self, address: str) -> asking.Outcomes:
        with WireClient(address) as client:
            world = build_world(client)
        return asking.outcomes(address, world, CASES, self.ranges, every=self._every)


@pytest.fixture(scope="module")
def brokers(pair: Pair, request: pytest.FixtureRequest) -> Brokers:
    return Brokers(pair, every=request.config.getoption("--every-version"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_both_answer_alike(brokers: Brokers, case: Case) -> None:
    lowest, highest = case.versions
    versions = [
        version
        for name, version in brokers.ours
        if name == case.id and lowest <= version <= highest
    ]
    assert versions, "no version of this is advertised by both"
    for version in versions:
        key = (case.id, version)
        found = (brokers.ours[key], brokers.kafka[key])
        if case.differs is None:
            assert found[0] == found[1], f"v{version}: ours, Kafka's"
        else:
            assert found == (case.differs.ours, case.differs.kafka), f"v{version}: ours, Kafka's"


def test_cases_have_names_of_their_own_and_differences_have_reasons() -> None:
    rows = [
        (case.id, version)
        for case in CASES
        for version in range(case.versions[0], case.versions[1] + 1)
    ]
    assert len(set(rows)) == len(rows)
    assert all(case.differs.why for case in CASES if case.differs)


def test_every_api_has_bad_requests() -> None:
    assert {case.api for case in CASES} == _SERVED


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_version_out_of_range_closes_the_connection(brokers: Brokers, api: object) -> None:
    """ApiVersions is answered in version 0 instead (KIP-511)."""
    key: int = api.key  # type: ignore[attr-defined]
    frame = b"".join(
        [key.to_bytes(2, "big"), (99).to_bytes(2, "big"), bytes(4), b"\x00\x01c\x00", bytes(20)]
    )
    for address in brokers.addresses:
        with WireClient(address) as client:
            client.send_bytes(len(frame).to_bytes(4, "big") + frame)
            if key == 18:
                assert client.receive_frame()[4:6] == (35).to_bytes(2, "big")
            else:
                assert client.is_closed_by_broker()
