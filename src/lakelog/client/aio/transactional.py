"""The transactional producer for an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from lakelog.client.aio.producer import SendingProducer
from lakelog.client.committed import Committed, Membership
from lakelog.client.errors import ClientError
from lakelog.client.offsets import TopicPartition
from lakelog.client.producer.transactional import TransactionalProducer


class AsyncTransactionalProducer(SendingProducer):
    """`TransactionalProducer` for an event loop: each method waits without blocking the loop.

    Methods have the arguments and errors of the methods of `TransactionalProducer`. Several tasks
    may send into one transaction; one of them begins and ends it. A cancelled task does not stop
    its call, and later calls wait for it.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        *,
        transaction_timeout_ms: int = 60_000,
        **settings: Any,
    ) -> None:
        self._transactions = TransactionalProducer(
            bootstrap, transactional_id, transaction_timeout_ms=transaction_timeout_ms, **settings
        )
        super().__init__(self._transactions)

    async def begin(self) -> None:
        """Same as `TransactionalProducer.begin`."""
        await self._thread.run(self._transactions.begin)

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | Committed],
        member: Membership | None = None,
    ) -> None:
        """Same as `TransactionalProducer.send_offsets`; `member` is `AsyncConsumer.membership`."""
        call = partial(self._transactions.send_offsets, group, dict(offsets), member)
        await self._thread.run(call)

    async def commit(self) -> None:
        """Same as `TransactionalProducer.commit`."""
        await self._thread.run(self._transactions.commit)

    async def abort(self) -> None:
        """Same as `TransactionalProducer.abort`.

        Tasks that still wait for their records get OPERATION_NOT_ATTEMPTED.
        """
        await self._thread.run(self._transactions.abort)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction; commit it after the block, or abort it if the block raises.

        A cancelled task aborts it, too, unless the commit has begun. Raises the errors of `begin`
        and `commit`.
        """
        try:
            await self.begin()
        except asyncio.CancelledError as error:
            # The call is made all the same, and would leave the transaction open.
            await self._abort_after(error)
            raise
        try:
            yield
        except BaseException as error:
            await self._abort_after(error)
            raise
        await self.commit()

    async def _abort_after(self, error: BaseException) -> None:
        """Abort; a failure is added to `error`, which the caller raises."""
        try:
            await self.abort()
        except ClientError as failure:
            error.add_note(f"aborting the transaction: {failure}")
