from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.hosted import Hosted, Queued, Writing
from lakelog.coordinator.shard import Now, Result, TransactionMarker
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock

_VALUE = bytes(400)


def _queued(*results: Result[Any]) -> Hosted[Any]:
    nothing = cast(Any, None)
    writing = Writing("t", nothing, nothing, 1000, 0, nothing, nothing)
    hosted: Hosted[Any] = Hosted(0, 0, nothing, nothing, writing)
    for result in results:
        hosted.queue.append(Queued(result, None, [(b"key", _VALUE) for _ in result.records]))
    return hosted


def _sizes(hosted: Hosted[Any]) -> list[int]:
    sizes = []
    while hosted.queue:
        sizes.append(len(hosted.take_batch(1000)))
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


class _World:
    """Notes the calls of the host, as the shard and as the request."""

    key = "t"

    def __init__(self, failure: ErrorCode | None, *decisions: Result[Any]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.deadlines: Deadlines[str] = Deadlines()
        self._decisions = iter(decisions)
        self._failure = failure

    def decide(self, *_: object) -> Result[Any]:
        return next(self._decisions)

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        return record.encode(), None

    def on_committed(self, _: Now, result: Result[Any]) -> list[Result[Any]]:
        self.calls.append(("on_committed", result.records))
        return [Result("f")] if result.records == "ab" else []

    def on_failed(self, _: Now, result: Result[Any]) -> None:
        self.calls.append(("on_failed", result.records))

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))

    async def run(self, decisions: int = 1) -> list[tuple[Any, ...]]:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        world = cast(Any, self)
        writing = Writing(
            "t", SystemClock(), tasks, 1000, 0, lambda _: None, lambda *need: self.provide(*need)
        )
        hosted: Hosted[Any] = Hosted(0, 0, cast(Any, _Log(self._failure)), world, writing)
        for _ in range(decisions):
            hosted.decide(self.decide, world)
        while writing.writers:
            await asyncio.wait(writing.writers.values())
        return self.calls


def test_a_reply_comes_after_the_replay_and_before_further_decisions() -> None:
    calls = asyncio.run(_World(None, Result("ab", reply="yes")).run())
    assert calls == [
        ("replay", "a"),
        ("replay", "b"),
        ("answer", "yes"),
        ("on_committed", "ab"),
        ("replay", "f"),
        ("on_committed", "f"),
    ]


def test_a_decision_without_records_is_answered_at_once() -> None:
    assert asyncio.run(_World(None, Result(reply="yes")).run()) == [("answer", "yes")]


def test_a_decision_with_a_need_has_no_reply() -> None:
    world = _World(None, Result(need="an id"))
    assert asyncio.run(world.run()) == [("provide", "an id", world)]


def test_each_open_request_is_refused_although_a_shard_cannot_forget_its_decision(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(_World):
        def on_failed(self, now: Now, result: Result[Any]) -> None:
            super().on_failed(now, result)
            if result.records == "a":
                raise RuntimeError("planted")

    told: list[ErrorCode] = []

    def failed(_: Now, code: ErrorCode) -> None:
        told.append(code)

    world = Failing(ErrorCode.NOT_ENOUGH_REPLICAS, Result("a", failed=failed), Result("b"))
    calls = asyncio.run(world.run(decisions=2))
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert calls == [("on_failed", "a"), ("refuse", code), ("on_failed", "b"), ("refuse", code)]
    assert told == [code]
    bugs = [record for record in caplog.records if record.exc_info is not None]
    assert [record.__dict__.get("event") for record in bugs] == ["coordinator_failed"]


def test_a_shard_forgets_a_failed_decision_before_its_request_is_refused() -> None:
    calls = asyncio.run(_World(ErrorCode.NOT_ENOUGH_REPLICAS, Result("a", reply="yes")).run())
    assert calls == [("on_failed", "a"), ("refuse", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
