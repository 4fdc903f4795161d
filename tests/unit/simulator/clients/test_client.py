"""Retries, names, values and verdicts that all simulated clients share."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from scripted_clients import ScriptedWorld, scripted_world
from simulator.checkers.compaction import TOMBSTONE
from simulator.checkers.laws import Law
from simulator.clients.client import Client


class FailingClient(Client):
    async def run(self) -> None:
        raise KeyError("offset")


def test_a_request_is_repeated_until_a_response_arrives() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        lost, found = (InitProducerIdRequest, None), InitProducerIdResponse(producer_id=7)
        broker = world.answer(client, lost, lost, (InitProducerIdRequest, found))
        request = InitProducerIdRequest(transactional_id=None)
        assert world.play(client.ask(request, 4)).producer_id == 7
        assert broker.requests == [request] * 3
        assert client.lost == 2


def test_a_client_that_fails_is_a_violation() -> None:
    with scripted_world() as world:
        with pytest.raises(KeyError):
            world.simulator.loop.run_until_complete(FailingClient(world.context, "bad").start())
        assert world.findings.violations == ["bad failed: KeyError('offset')"]
        assert world.findings.broken == {Law.CLIENTS_LIVE}


@pytest.mark.parametrize(
    ("code", "asked_at", "excused"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1.5, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1.6, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, 1.6, True),
    ],
)
def test_a_retriable_error_needs_a_fault_that_explains_it(
    code: ErrorCode, asked_at: float, excused: bool
) -> None:
    with scripted_world() as world:
        Client(world.context, "client").expect_progress("Produce", code, asked_at)
        assert world.findings.broken == (set() if excused else {Law.PROGRESS})


@pytest.mark.parametrize("disturbed", [False, True])
def test_a_late_response_needs_a_disturbance(disturbed: bool) -> None:
    async def wait_for_a_broker_that_is_down(world: ScriptedWorld) -> None:
        client = Client(world.context, "client")
        if disturbed:
            with world.conditions.disturbing():
                client._on_late("ProduceRequest", client.now)
        else:
            client._on_late("ProduceRequest", client.now)

    with scripted_world() as world:
        world.play(wait_for_a_broker_that_is_down(world))
        assert world.findings.broken == (set() if disturbed else {Law.PROMPT})


def test_values_of_a_client_and_of_its_successor_are_unique() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        successor = Client(world.context, client.next_name)
        values = client.new_values(100) + client.new_values(100) + successor.new_values(100)
        assert len(set(values)) == 300
        assert all(value.startswith(b"k1/") for value in client.new_values(5, key=b"k1/"))


def test_names_count_replacements() -> None:
    with scripted_world() as world:
        client = Client(world.context, "once0")
        assert client.next_name == "once0'1"
        assert Client(world.context, "once0'9").next_name == "once0'10"


def test_some_keys_are_frequent_and_some_values_are_tombstones() -> None:
    with scripted_world() as world:
        client = Client(world.context, "client")
        keys = [client.some_key() for _ in range(1000)]
    tombstones = sum(key.endswith(TOMBSTONE) for key in keys)
    names = [key.partition(b"/")[0] for key in keys]
    assert 100 < tombstones < 200
    assert len(set(names)) == 40
    assert sum(names.count(b"k%d" % number) for number in range(4)) > 600
