from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerRecord
from lakelog.server.auth.broker_proof import NONCE_BYTES, Ends, Process, ProofCheck
from lakelog.server.auth.registered import RegisteredBrokers
from memory_broker import InlineTasks
from simulator.engine.loop import SimulatedLoop

OWN, CALLER, FORMER = Process(1, b"o" * 16), Process(2, b"c" * 16), Process(2, b"f" * 16)
ONE, TWO = b"1" * NONCE_BYTES, b"2" * NONCE_BYTES


class Metadata:
    """An image that knows the former process of broker 2, and a store that knows live ones."""

    def __init__(self, live: Mapping[int, bytes] | None) -> None:
        record = BrokerRecord(2, FORMER.incarnation_id, 1, (), None)
        self.image = MetadataImage().apply_all([record], 1)
        self._live = live
        self.looks = 0

    async def live_brokers(self) -> Mapping[int, bytes]:
        self.looks += 1
        await asyncio.sleep(1.0)
        if self._live is None:
            raise MetadataUnavailable("no quorum")
        return self._live


def answers(metadata: Any, *callers: Process) -> list[bool]:
    """Return which callers, all at once, are taken for registered processes."""
    loop = SimulatedLoop(None)
    registered = RegisteredBrokers(metadata, InlineTasks(loop))

    async def answer(caller: Process) -> bool:
        check = ProofCheck("cluster", OWN, TWO)
        check.begin(caller.node_id.to_bytes(4, "big") + ONE)
        token = Ends("cluster", caller, OWN).mac(b"caller", ONE, TWO)
        return await registered.answer(check, token) is not None

    async def ask() -> list[bool]:
        return list(await asyncio.gather(*map(answer, callers)))

    try:
        return loop.run_until_complete(ask())
    finally:
        loop.close()


def test_a_process_of_the_image_is_known_without_a_look_into_the_store() -> None:
    metadata = Metadata(None)
    assert answers(metadata, FORMER) == [True]
    assert not metadata.looks


def test_a_process_that_the_image_does_not_show_yet_is_found_in_the_store() -> None:
    assert answers(Metadata({2: CALLER.incarnation_id}), CALLER) == [True]


def test_a_stranger_is_refused_also_while_the_store_cannot_be_read() -> None:
    stranger = Process(7, b"s" * 16)
    assert answers(Metadata({2: CALLER.incarnation_id}), stranger) == [False]
    assert answers(Metadata(None), CALLER, stranger) == [False, False]


def test_many_wrong_proofs_cost_one_look_at_a_time() -> None:
    metadata = Metadata({2: CALLER.incarnation_id})
    strangers = [Process(number, b"s" * 16) for number in range(100)]
    assert not any(answers(metadata, *strangers))
    assert metadata.looks == 1
