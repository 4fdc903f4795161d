"""Log lines about the advertised addresses of this broker."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from called_broker import ADDRESS, CalledBroker
from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode
from lakelog.dialogue.dialogue import Identity
from lakelog.server.peers.advertised import check_advertised
from lakelog.server.peers.peer import PeerSeams
from simulator.engine.clock import SimulatedClock
from simulator.engine.loop import SimulatedLoop
from simulator.engine.process import Process
from simulator.engine.tasks import SimulatedTasks, StreamRandom
from simulator.network.network import Network
from simulator.network.sockets import SimulatedNet

HERE, NOWHERE = Endpoint("X", *ADDRESS), Endpoint("Y", "b", 1)


@pytest.mark.parametrize(
    ("greeting_error", "endpoint", "events"),
    [
        (0, HERE, []),
        (0, NOWHERE, [("advertised_address_unreachable", "INFO")]),
        (ErrorCode.REBOOTSTRAP_REQUIRED, HERE, [("advertised_address_wrong", "WARNING")]),
    ],
)
def test_only_an_address_without_this_broker_leaves_a_line(
    greeting_error: int,
    endpoint: Endpoint,
    events: list[tuple[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "lakelog.server.peers")
    with contextlib.closing(SimulatedLoop(random.Random(7))) as loop:
        rng, process = random.Random(7), Process("a")
        network = Network(loop, rng, lambda *event: None, Counter())
        CalledBroker(network).greeting_error = greeting_error
        net: Any = SimulatedNet(network, process)
        tasks, clock = SimulatedTasks(loop, rng), SimulatedClock(loop)
        seams = PeerSeams(1, net, tasks, clock, StreamRandom(rng))
        loop.run_until_complete(check_advertised(Identity("cluster", 1), [endpoint], seams))
    found = [(record.__dict__["event"], record.levelname) for record in caplog.records]
    assert found == events
    assert process.sockets == []
