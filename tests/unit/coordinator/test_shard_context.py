from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.shard import Effect, Now, Result, TransactionMarker
from lakelog.coordinator.shard_context import Queued, ShardContext, Writing
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock
from waiting import until

_VALUE = bytes(400)


def _queued(*results: Result[Any]) -> ShardContext[Any]:
    nothing = cast(Any, None)
    writing = Writing("t", nothing, nothing, 1000, 0, nothing, nothing)
    context: ShardContext[Any] = ShardContext(0, 0, nothing, nothing, writing)
    for result in results:
        context.queue.append(Queued(result, None, [(b"key", _VALUE) for _ in result.records]))
    return context


def _sizes(context: ShardContext[Any]) -> list[int]:
    sizes = []
    while context.queue:
        sizes.append(len(context.take_batch(1000)))
    return sizes


def test_decisions_share_a_batch_up_to_its_size() -> None:
    assert _sizes(_queued(*[Result("r")] * 5)) == [2, 2, 1]


def test_a_decision_larger_than_a_batch_has_one_of_its_own() -> None:
    assert _sizes(_queued(Result("r"), Result("rrrr"), Result("r"))) == [1, 1, 1]


def test_a_part_of_a_transaction_and_its_end_share_no_batch() -> None:
    """A batch has one producer, and a marker is a batch."""
    part: Result[Any] = Result("r", producer=(7, 0))
    end: Result[Any] = Result(marker=TransactionMarker(7, 0, True, 0, 2))
    plain: Result[Any] = Result("r")
    assert _sizes(_queued(plain, part, part, plain, end, plain)) == [1, 1, 1, 1, 1, 1]


class _Log:
    """A log that commits at once, or fails."""

    def __init__(self, failure: ErrorCode | None = None) -> None:
        self.end = 0
        self.failure = failure

    async def append(self, batch: bytearray) -> int:
        if self.failure is not None:
            raise KafkaError(self.failure)
        self.end += 1
        return self.end


class _Noted(Effect):
    """Notes its calls; its further decision is `further`."""

    def __init__(self, world: _World, *further: Result[Any]) -> None:
        self._world = world
        self._further = further

    def committed(self, _: Now, result: Result[Any]) -> tuple[Result[Any], ...]:
        self._world.calls.append(("committed", result.records))
        return self._further

    def failed(self, _: Now, result: Result[Any], code: ErrorCode) -> tuple[Result[Any], ...]:
        self._world.calls.append(("failed", result.records))
        return self._further


class _World:
    """Notes the calls of the host, as the shard and as the request."""

    key = "t"

    def __init__(self, failure: ErrorCode | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.deadlines: Deadlines[str] = Deadlines()
        self.due: dict[str, Callable[[], list[Result[Any]]]] = {}
        self._failure = failure

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        return record.encode(), None

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    def on_due(self, now: Now, key: str) -> list[Result[Any]]:
        return self.due[key]()

    async def run(self, *decisions: Result[Any]) -> list[tuple[Any, ...]]:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        world = cast(Any, self)
        writing = Writing(
            "t", SystemClock(), tasks, 1000, 0, lambda _: None, lambda *need: self.provide(*need)
        )
        context: ShardContext[Any] = ShardContext(
            0, 0, cast(Any, _Log(self._failure)), world, writing
        )
        for decision in decisions:
            context.decide(lambda *_, decided=decision: decided, world)
        await until(lambda: self.deadlines.earliest is None)
        while writing.writers:
            await asyncio.wait(writing.writers.values())
        return self.calls


def test_a_reply_comes_after_the_replay_and_before_further_decisions() -> None:
    world = _World()
    further: Result[Any] = Result("f", effects=(_Noted(world),))
    decision: Result[Any] = Result("ab", "yes", (_Noted(world, further),))
    assert asyncio.run(world.run(decision)) == [
        ("replay", "a"),
        ("replay", "b"),
        ("answer", "yes"),
        ("committed", "ab"),
        ("replay", "f"),
        ("committed", "f"),
    ]


def test_a_decision_without_records_is_answered_at_once() -> None:
    world = _World()
    decision: Result[Any] = Result((), "yes", (_Noted(world),))
    assert asyncio.run(world.run(decision)) == [("answer", "yes"), ("committed", ())]


@pytest.mark.parametrize("records", ["", "a"])
def test_a_later_reply_is_left_to_the_shard(records: str) -> None:
    calls = asyncio.run(_World(ErrorCode.NOT_ENOUGH_REPLICAS).run(Result(records)))
    assert calls == []


def test_a_request_that_has_waited_gets_the_reply_of_a_further_decision() -> None:
    world = _World()
    waited = _World()
    decision: Result[Any] = Result(
        "a", effects=(_Noted(world, Result("b", "yes", request=waited)),)
    )
    assert asyncio.run(world.run(decision))[-1] == ("replay", "b")
    assert waited.calls == [("answer", "yes")]


def test_a_decision_with_a_need_has_no_reply() -> None:
    world = _World()
    assert asyncio.run(world.run(Result(need="an id"))) == [("provide", "an id", world)]


def test_effects_follow_a_failed_decision_before_its_request_is_refused() -> None:
    world = _World(ErrorCode.NOT_ENOUGH_REPLICAS)
    further: Result[Any] = Result(effects=(_Noted(world),))
    decision: Result[Any] = Result("a", "yes", (_Noted(world, further),))
    assert asyncio.run(world.run(decision)) == [
        ("failed", "a"),
        ("committed", ()),
        ("refuse", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ]


def test_each_open_request_is_refused_although_an_effect_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(_Noted):
        def failed(self, now: Now, result: Result[Any], code: ErrorCode) -> tuple[Result[Any], ...]:
            super().failed(now, result, code)
            raise RuntimeError("planted")

    world = _World(ErrorCode.NOT_ENOUGH_REPLICAS)
    first: Result[Any] = Result("a", "yes", (Failing(world), _Noted(world)))
    calls = asyncio.run(world.run(first, Result("b", "yes", (_Noted(world),))))
    refused = ("refuse", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert calls == [("failed", "a"), ("failed", "a"), refused, ("failed", "b"), refused]
    bugs = [record for record in caplog.records if record.exc_info is not None]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]


def test_a_bug_at_a_deadline_holds_back_no_other_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(_Noted):
        def committed(self, now: Now, result: Result[Any]) -> tuple[Result[Any], ...]:
            raise RuntimeError("planted")

    def fail() -> list[Result[Any]]:
        raise RuntimeError("planted")

    world, waiting = _World(), [_World() for _ in range(3)]
    decided: list[Result[Any]] = [
        Result((), "yes", (Failing(world),), request=waiting[0]),
        Result([1], "yes", request=waiting[1]),
        Result("a", "yes", request=waiting[2]),
    ]
    world.due = {"first": fail, "second": lambda: decided}
    for tick_ms, key in enumerate(world.due):
        world.deadlines.set(key, tick_ms)
    asyncio.run(world.run(Result((), "yes")))
    refused = [("refuse", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert [each.calls for each in waiting] == [[("answer", "yes")], refused, [("answer", "yes")]]
    bugs = [record for record in caplog.records if record.exc_info is not None]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"] * 3


def test_a_long_chain_of_decisions_without_records_is_followed() -> None:
    world = _World()
    decision: Result[Any] = Result((), "yes")
    for _ in range(2000):
        decision = Result(effects=(_Noted(world, decision),))
    asyncio.run(world.run(decision))
    assert world.calls == [("committed", ())] * 2000
