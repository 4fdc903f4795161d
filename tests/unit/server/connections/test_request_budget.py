"""Requests that begin in one iteration of the loop, and the order of the waiting ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from fake_transport import FETCH, CrowdedLoop, FakeSlice, FakeTransport, frame, request
from lakelog.runtime.loop_iterations import PART_S, LoopIterations
from lakelog.server.connections.request_budget import (
    FREE,
    ITERATION_BYTES,
    SHARE,
    SMALL,
    Rank,
    RequestBudget,
)
from lakelog.server.connections.send_queue import SEND_SIZE_MAX

TAKES_S = PART_S / 4.5
"""Seconds of a request in most tests: five begin in a queue's part of a loop iteration."""
EACH = 5


class IterationLoop:
    """Callbacks in turns, as a loop runs them: one scheduled in a loop iteration runs in the next.

    Time passes only while requests are handled.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.clock_readings = 0
        self.soon: deque[Callable[[], object]] = deque()
        self.iterations = RequestBudget(self, LoopIterations(self, self))  # type: ignore[arg-type]

    def monotonic(self) -> float:
        self.clock_readings += 1
        return self.now

    def call_soon(self, callback: Callable[[], object], *_: Any) -> None:
        self.soon.append(callback)

    def iteration(self) -> float:
        """Seconds that the loop iteration has taken."""
        begun = self.now
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        return self.now - begun


class Asking:
    """Wants `count` requests begun, as a connection does."""

    def __init__(
        self,
        loop: IterationLoop,
        count: int,
        rank: Rank = Rank.ANSWERED,
        *,
        costly: bool = True,
        takes_s: float = TAKES_S,
    ) -> None:
        self._loop = loop
        self._left = count
        self._rank = rank
        self._costly = costly
        self._takes_s = takes_s
        self.begun = 0

    def go_on(self) -> None:
        iterations = self._loop.iterations
        share = 0 if iterations.left <= 0 and iterations.is_over() else iterations.share
        while self._left:
            if share <= 0 or (self._costly and not iterations.may_begin()):
                iterations.wait(self.go_on, Rank.AHEAD if self.begun else self._rank)
                return
            self._left -= 1
            self.begun += 1
            self._loop.now += self._takes_s
            iterations.left -= 1
            share = 0 if self._costly else share - 1


def _crowd(loop: IterationLoop, size: int, *arguments: Any, **options: Any) -> list[Asking]:
    crowd = [Asking(loop, *arguments, **options) for _ in range(size)]
    for one in crowd:
        one.go_on()
    return crowd


def _begun(crowd: list[Asking]) -> int:
    return sum(one.begun for one in crowd)


@pytest.mark.parametrize("costly", [True, False])
@pytest.mark.parametrize("count", [1, 50])
def test_a_loop_iteration_has_its_time_however_many_ask(count: int, costly: bool) -> None:
    loop = IterationLoop()
    begun = loop.now
    crowd = _crowd(loop, 500, count, costly=costly)
    in_one_callback = 1 if costly else min(count, SHARE)
    untimed = 0 if costly else FREE
    assert loop.now - begun <= PART_S + (untimed + 2 * in_one_callback) * TAKES_S
    while loop.iterations.waiting:
        before = _begun(crowd)
        assert loop.iteration() <= 2 * (PART_S + in_one_callback * TAKES_S)
        assert loop.iterations.waiting == 0 or _begun(crowd) - before >= EACH
    assert [one.begun for one in crowd] == [count] * 500


def test_connections_of_one_queue_continue_in_order_of_arrival() -> None:
    loop = IterationLoop()
    crowd = _crowd(loop, 100, 1)
    while loop.iterations.waiting:
        loop.iteration()
        done = [one.begun for one in crowd]
        assert done == sorted(done, reverse=True)
    assert not loop.soon, "no connection waits, so no turn may be scheduled"


def test_a_waiting_client_precedes_new_connections_and_clients_that_send_ahead() -> None:
    loop = IterationLoop()
    _crowd(loop, 500, 50)
    _crowd(loop, 1_500, 1, Rank.NEW)
    while any(loop.iterations._queues[Rank.ANSWERED]):
        loop.iteration()
    assert all(map(len, loop.iterations._queues[Rank.NEW :]))
    good = Asking(loop, 1)
    good.go_on()
    assert good.begun == 0
    loop.iteration()
    assert good.begun == 1


@pytest.mark.parametrize("crowded", Rank)
def test_every_queue_proceeds_while_another_is_never_empty(crowded: Rank) -> None:
    """Even by requests each of which takes longer than a loop iteration."""
    loop = IterationLoop()
    others = []
    for rank in Rank:
        loop.iterations.wait(Asking(loop, 1000, rank, takes_s=0.02).go_on, rank)
        others.append(Asking(loop, 1, rank, takes_s=0.02))
        loop.iterations.wait(others[-1].go_on, rank)
    for _ in range(5):
        for _ in range(3):
            loop.iterations.wait(Asking(loop, 1, crowded, takes_s=0.02).go_on, crowded)
        assert loop.iteration() <= len(Rank) * 0.02 + 1e-9
    assert [one.begun for one in others] == [1, 1, 1]


def test_few_requests_of_produce_and_fetch_are_not_timed() -> None:
    loop = IterationLoop()
    _crowd(loop, FREE, 1, costly=False)
    assert (loop.clock_readings, loop.iterations.waiting, len(loop.soon)) == (0, 0, 0)
    _crowd(loop, 1, 1, costly=False)
    assert len(loop.soon) == 1
    loop.iteration()
    assert (loop.iterations.left, len(loop.soon)) == (FREE, 0)


def test_a_loop_iteration_that_other_requests_have_used_up_is_over_for_produce_and_fetch() -> None:
    loop = IterationLoop()
    _crowd(loop, EACH + 1, 1)
    assert loop.iterations.waiting == 1
    (cheap,) = _crowd(loop, 1, 1, costly=False)
    assert cheap.begun == 0
    loop.iteration()
    assert cheap.begun == 1


def test_no_connection_waits_while_there_is_enough_for_all() -> None:
    loop = IterationLoop()
    for _ in range(20):
        crowd = _crowd(loop, EACH, 1)
        assert all(one.begun == 1 for one in crowd)
        loop.iteration()
        assert not loop.iterations.waiting
        assert loop.iterations.share == SHARE


def test_the_share_of_a_connection_shrinks_while_others_wait() -> None:
    loop = IterationLoop()
    iterations = loop.iterations
    _crowd(loop, 2 * EACH, 1)
    assert (iterations.waiting, iterations.share) == (EACH, SHARE)
    _crowd(loop, 26, 1)
    assert (iterations.waiting, iterations.share) == (31, SHARE // 4)
    _crowd(loop, 500, 1)
    assert iterations.share == 1
    while iterations.waiting:
        loop.iteration()
    assert iterations.share == SHARE


def test_a_failing_callback_keeps_no_other_from_its_turn() -> None:
    loop = IterationLoop()
    crowd = _crowd(loop, 10, 50)

    def fail() -> None:
        raise RuntimeError("planted")

    loop.iterations.wait(fail, Rank.ANSWERED)
    late = Asking(loop, 1)
    late.go_on()
    failures = 0
    for _ in range(200):
        try:
            loop.iteration()
        except RuntimeError:
            failures += 1
    assert failures == 1
    assert late.begun == 1
    assert _begun(crowd) == 500


MIB = 1 << 20
CROWD = 40


def crowd(loop: CrowdedLoop, size: int, *, at_once: bool = False) -> list[FakeTransport]:
    """Connections whose sockets take everything, each with one request for so many bytes."""
    transports = []
    for _ in range(CROWD):
        transport, sink, _ = loop.connect()
        wanted = request(1, FETCH)
        sink.slices[wanted] = FakeSlice(bytes(size))
        sink.slices[wanted].is_resident = True
        sink.at_once = at_once
        transport.incoming += frame(wanted)
        transports.append(transport)
    return transports


@pytest.mark.parametrize(("size", "at_once"), [(3 * MIB, False), (MIB, True), (100_000, True)])
def test_all_together_send_a_bounded_part_and_each_gets_its_share(size: int, at_once: bool) -> None:
    loop = CrowdedLoop()
    transports = crowd(loop, size, at_once=at_once)
    iterations = 0
    while any(len(transport.sent) <= size for transport in transports):
        assert loop.iteration() <= ITERATION_BYTES + 100 * CROWD
        parts = sorted(len(transport.sent) for transport in transports)
        assert parts[-1] - parts[0] <= SEND_SIZE_MAX + 100
        iterations += 1
    assert CROWD * size / ITERATION_BYTES <= iterations <= 2 * CROWD * size / ITERATION_BYTES + 5
    assert loop.iterations.sending.waiting == 0
    assert not loop.soon or loop.iteration() == 0


def test_a_small_response_does_not_wait_for_large_ones() -> None:
    loop = CrowdedLoop()
    crowd(loop, 20 * MIB)
    good, _, _ = loop.connect()
    for number in range(10):
        loop.iteration()
        good.incoming += frame(request(number))
        loop.iteration()
        assert bytes(good.sent) == b"<" + request(number) + b">"
        del good.sent[:]


def test_a_late_response_waits_for_its_turn_unless_it_is_small() -> None:
    loop = CrowdedLoop()
    crowd(loop, 20 * MIB)
    asked, sink, _ = loop.connect()
    sink.wait = True
    asked.incoming += frame(request(1))
    loop.iteration()
    loop.iterations.sending.left = 0
    sink.replies[0].complete([bytes(SMALL + 1)])
    assert not asked.sent
    assert loop.iterations.sending.waiting
    while not asked.sent:
        loop.iteration()
    assert len(asked.sent) == SMALL + 1
    asked.incoming += frame(request(2))
    loop.iteration()
    loop.iterations.sending.left = 0
    sink.replies[1].complete([bytes(SMALL)])
    assert len(asked.sent) == SMALL + 1 + SMALL


def test_small_responses_take_nothing_of_a_loop_iteration() -> None:
    loop = CrowdedLoop()
    asked, _, _ = loop.connect()
    for number in range(10):
        asked.incoming += frame(request(number))
        loop.iteration()
    assert asked.sent
    assert loop.iterations.sending.left == ITERATION_BYTES


def test_a_loop_iteration_is_used_to_its_last_byte() -> None:
    loop = CrowdedLoop()
    crowd(loop, 3 * MIB)
    loop.iteration()
    loop.iterations.sending.left = 1
    late, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(MIB))
    late.incoming += frame(request(1))
    assert late.readable
    late.readable()
    assert late.sent
    assert loop.iterations.sending.left <= 0


def test_a_loop_iteration_resumes_no_connection_that_could_not_send() -> None:
    iterations = CrowdedLoop().iterations
    sending, resumed = iterations.sending, list[int]()
    for number in range(1000):

        def resume(number: int = number) -> None:
            resumed.append(number)
            sending.spend(ITERATION_BYTES // 4)

        sending.wait(resume)
    iterations.loop_iterations.next_iteration()
    assert resumed == [0, 1, 2, 3]
    assert sending.waiting == 996


def test_a_single_reader_sends_as_much_in_a_loop_iteration_as_before() -> None:
    loop = CrowdedLoop()
    transport, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(20 * MIB))
    transport.incoming += frame(request(1))
    assert [loop.iteration() for _ in range(19)] == [SEND_SIZE_MAX] * 19


def test_full_sockets_keep_no_other_waiting() -> None:
    loop = CrowdedLoop()
    for transport in crowd(loop, 20 * MIB):
        transport.capacity = 10_000
    quick, sink, _ = loop.connect()
    sink.slices[request(1)] = FakeSlice(bytes(20 * MIB))
    quick.incoming += frame(request(1))
    for _ in range(21):
        loop.iteration()
    assert len(quick.sent) > 20 * MIB


def test_a_connection_that_is_closed_while_it_waits_leaves_its_turn_to_others() -> None:
    loop = CrowdedLoop()
    waiting = crowd(loop, 3 * MIB)
    found = [loop.connect() for _ in range(5)]
    for transport, sink, _ in found:
        sink.slices[request(1, FETCH)] = FakeSlice(bytes(3 * MIB))
        transport.incoming += frame(request(1, FETCH))
    loop.iteration()
    for _, sink, connection in found:
        connection.close()
        assert sink.slices[request(1, FETCH)].released == 1
    while any(len(transport.sent) <= 3 * MIB for transport in waiting):
        assert loop.iteration()
    assert all(len(transport.sent) < 10 for transport, _, _ in found)
