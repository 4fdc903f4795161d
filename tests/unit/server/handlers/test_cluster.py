from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced
from lakelog.metadata.store.api import ControllerTerm
from lakelog.protocol.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.server.authentication import Process
from lakelog.server.handlers.cluster import describe_cluster, unregister_broker, update_features
from lakelog.server.handlers.connections import api_versions
from memory_broker import LOCAL, MemoryBroker


def test_the_broker_is_the_controller(world: MemoryBroker) -> None:
    response = world.ask(describe_cluster, DescribeClusterRequest(), 2)
    assert response.error_code == ErrorCode.NONE
    assert (response.controller_id, response.cluster_id) == (1, world.broker.cluster_id)
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (1, *LOCAL)
    assert response.cluster_authorized_operations < 0


def test_operations_come_on_request(world: MemoryBroker) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert world.ask(describe_cluster, request, 0).cluster_authorized_operations > 0


def test_fenced_brokers_come_on_request(world: MemoryBroker) -> None:
    world.register(2, "h", 9093)
    world.register(3, "h", 9094)
    fence = BrokerFenced(3, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))

    def brokers(version: int, *, fenced: bool) -> list[tuple[int, bool]]:
        request = DescribeClusterRequest(include_fenced_brokers=fenced)
        response = world.ask(describe_cluster, request, version)
        return sorted((each.broker_id, each.is_fenced) for each in response.brokers)

    assert brokers(2, fenced=False) == brokers(1, fenced=False) == [(1, False), (2, False)]
    assert brokers(2, fenced=True) == [(1, False), (2, False), (3, True)]


@pytest.mark.parametrize(
    ("sender", "missing", "silent_s", "is_missing"),
    [
        (3, 2, 9.0, True),
        (3, 2, 1.0, False),
        (3, 4, 9.0, False),
        (3, -1, 9.0, False),
        (None, 2, 9.0, False),
    ],
    ids=["missed", "answers", "no controller", "not asked", "a client"],
)
def test_other_brokers_learn_whether_the_controller_answers(
    world: MemoryBroker, sender: int | None, missing: int, silent_s: float, is_missing: bool
) -> None:
    world.broker.metadata._term = ControllerTerm(2, 9, b"2" * 16)
    silence = world.broker.silence
    silence._tick_s = silent_s
    processes = [Process(each, bytes([each]) * 16) for each in (2, 4)]
    silence.follow(processes, 0.0)
    for each in processes:
        silence.note_answer(each, 0.0)
    silence.tick(silent_s)
    response = world.ask(
        describe_cluster, DescribeClusterRequest(missing=missing), 0, sender=sender
    )
    assert response.is_missing is is_missing


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_describes_brokers_only(
    world: MemoryBroker, endpoint: int, code: ErrorCode
) -> None:
    response = world.ask(describe_cluster, DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert (response.error_code, response.endpoint_type) == (code, endpoint)
    assert response.error_message and not response.brokers


@pytest.mark.parametrize(("percent", "is_cut_off"), [(60, True), (90, False)])
def test_a_broker_names_the_length_of_its_leases(
    world: MemoryBroker, percent: int, is_cut_off: bool
) -> None:
    silence = world.broker.silence
    silence.follow([Process(2, b"a" * 16)], 0.0)
    request = DescribeClusterRequest(missed_brokers=[], lease_percent=percent)
    world.ask(describe_cluster, request, 2, sender=2)
    for _ in range(27):
        silence.tick(world.broker.config.get_int("broker.session.timeout.ms") / 1000 / 36)
    assert bool(silence.cut_off()) is is_cut_off


def test_a_broker_that_no_other_one_reaches_gets_no_lease(world: MemoryBroker) -> None:
    silence = world.broker.silence
    silence.follow([Process(2, b"a" * 16), Process(3, b"b" * 16)], 0.0)

    def ask(sender: int | None, missed: list[int] | None, ended: int = -1) -> int:
        request = DescribeClusterRequest(missed_brokers=missed, ended_lease=ended)
        return world.ask(describe_cluster, request, 2, sender=sender).denied_lease

    assert ask(2, [3]) == ask(3, [2]) == -1
    silence.note_answer(Process(3, b"b" * 16), 0.0)
    for _ in range(40):
        ask(None, [])
        ask(2, None)
        ask(3, [2])
        silence.note_answer(Process(3, b"b" * 16), 0.0)
        silence.tick(world.broker.config.get_int("broker.session.timeout.ms") / 1000 / 36)
    assert ask(3, [2]) == ask(None, None) == -1
    denied = ask(2, [])
    assert denied == ask(2, []) > 0
    assert not silence.deafness.deaf()
    ask(2, [], denied)
    assert silence.deafness.deaf() == {2}


TV = "transaction.version"


def _request(level: int, **fields: object) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature=TV, max_version_level=level)
    for name, value in fields.items():
        setattr(update, name, value)
    return UpdateFeaturesRequest(feature_updates=[update])


def _levels(world: MemoryBroker) -> tuple[int, dict[str, int]]:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = world.ask(api_versions, request, 4)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return response.finalized_features_epoch, levels


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_downgrade_is_finalized_and_clients_learn_of_it(
    version: int, world: MemoryBroker
) -> None:
    epoch, levels = _levels(world)
    assert levels[TV] == 2
    fields = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
    response = world.ask(update_features, _request(1, **fields), version)
    assert not response.error_code
    assert [each.feature for each in response.results] == ([TV] if version < 2 else [])
    later, levels = _levels(world)
    assert levels[TV] == 1 and later > epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_rejected_request_has_a_code_and_a_text(version: int, world: MemoryBroker) -> None:
    response = world.ask(update_features, _request(9), version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "transaction.version=9" in (response.error_message or "")
    assert _levels(world)[1][TV] == 2


def test_a_validation_changes_nothing(world: MemoryBroker) -> None:
    request = _request(1, upgrade_type=2)
    request.validate_only = True
    assert not world.ask(update_features, request, 1).error_code
    assert _levels(world)[1][TV] == 2


def ask(world: MemoryBroker, broker_id: int) -> tuple[int, str | None]:
    response = world.ask(unregister_broker, UnregisterBrokerRequest(broker_id=broker_id), 0)
    return response.error_code, response.error_message


def test_a_stopped_broker_is_unregistered(world: MemoryBroker) -> None:
    world.register(2, "h", 9093)
    fence = BrokerFenced(2, 1)
    world.run(world.broker.metadata.submit(lambda image: Plan((fence,), None)))
    assert ask(world, 2) == (ErrorCode.NONE, None)
    assert sorted(world.broker.image.brokers) == [1]


def test_a_running_broker_stays_registered(world: MemoryBroker) -> None:
    code, message = ask(world, 1)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and "broker 1 is running" in message


def test_an_unknown_broker_has_an_error(world: MemoryBroker) -> None:
    assert ask(world, 9) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 9 is not registered")
