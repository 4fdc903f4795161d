"""Transactions of an event loop; tests/clients/test_transactions.py has them on a broker."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.aio import AsyncTransactionalProducer
from lakelog.client.errors import ClientError


class Twin:
    """Stands for the synchronous producer; `begin` waits for `gate`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.abort_error: Exception | None = None

    def begin(self) -> None:
        self.gate.wait(60)
        self.calls.append("begin")

    def commit(self) -> None:
        self.calls.append("commit")

    def abort(self) -> None:
        self.calls.append("abort")
        if self.abort_error is not None:
            raise self.abort_error

    def send_offsets(self, group: str, offsets: Any, member: Any) -> None:
        self.calls.append(f"offsets of {group}")

    def __exit__(self, *error: object) -> None:
        self.calls.append("close")


def producer_of(twin: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncTransactionalProducer:
    path = "lakelog.client.aio.transactional.TransactionalProducer"
    monkeypatch.setattr(path, lambda *arguments, **settings: twin)
    return AsyncTransactionalProducer("localhost:1", "id")


def test_a_block_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()

    async def main() -> None:
        async with producer_of(twin, monkeypatch) as producer, producer.transaction():
            await producer.send_offsets("copies", {("orders", 0): 5})

    asyncio.run(main())
    assert twin.calls == ["begin", "offsets of copies", "commit", "close"]


def test_a_block_that_raises_is_aborted_and_keeps_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    twin = Twin()
    twin.abort_error = ClientError(ErrorCode.NETWORK_EXCEPTION, "lost")

    async def main() -> None:
        async with producer_of(twin, monkeypatch) as producer, producer.transaction():
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]
    assert raised.value.__notes__ == ["aborting the transaction: NETWORK_EXCEPTION: lost"]


def test_a_cancelled_task_aborts_its_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()

    async def main() -> None:
        async with producer_of(twin, monkeypatch) as producer:
            inside = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_task_that_is_cancelled_in_begin_leaves_no_open_transaction(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """It ends as cancelled, whether or not the abort succeeds: a timeout waits for that."""
    twin = Twin()
    if fails:
        twin.abort_error = ClientError(ErrorCode.NETWORK_EXCEPTION, "lost")

    async def main() -> None:
        async with producer_of(twin, monkeypatch) as producer:
            twin.gate.clear()

            async def work() -> None:
                async with producer.transaction():
                    raise AssertionError

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            twin.gate.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert twin.calls == ["begin", "abort", "close"]
