"""Offsets that a member commits in transactions, as a consumer that also produces (KIP-447)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from simulator.checkers.observations import Fate, Place, Transaction
from simulator.clients.client import RETRIABLE
from simulator.clients.groups.member import EXPELLED
from simulator.clients.producers.transaction_requests import (
    Identity,
    end_request,
    init_request,
    offset_request,
)
from simulator.network.connection import NoResponse

if TYPE_CHECKING:
    from simulator.clients.groups.member import GroupClient

_COMMIT_VERSION, _END_VERSION = 5, 5
_REFUSED = EXPELLED | RETRIABLE


class MemberTransactions:
    """The transactions of one member, each with an identity of its own, as after a restart.

    `is_open` is whether the coordinator may wait for an end; `close` or the next transaction
    brings it about.
    """

    def __init__(self, member: GroupClient) -> None:
        self._member = member
        self._id = "relay-" + member.name.partition("'")[0]
        self._count = 0
        self.is_open = False

    async def commit(
        self, partition: Place, generation: int, member_id: str, *, keep: bool
    ) -> bool:
        """Commit an offset in a transaction, which is committed if `keep`, else aborted.

        Returns whether the broker accepted the offset.
        """
        member, began = self._member, self._member.now
        identity = await self._identify()
        if identity is None:
            return False
        self._count += 1
        transaction = member.history.begin(f"{self._id}/{member.name}/{self._count}")
        value = member.offsets.will_commit(member.group, partition, transaction)
        request = offset_request(self._id, identity, member.group, partition, value)
        request.generation_id_or_member_epoch, request.member_id = generation, member_id
        answer = await self._call(request, _COMMIT_VERSION)
        code = None if answer is None else answer.topics[0].partitions[0].error_code
        if code == 0:
            ends = member.home.log_ends()
            member.offsets.acknowledged(member.group, partition, value, ends)
            member.findings.counts["offsets in members' transactions"] += 1
        elif code is not None and code not in _REFUSED and not member.may_be_stale(began):
            member.unexpected("TxnOffsetCommit", code)
        await self._end(transaction, identity, commit=keep and code == 0)
        return code == 0

    async def close(self) -> None:
        """End a transaction that may be open: this member starts no other one."""
        while self.is_open and await self._identify() is None:
            await self._member.pause(0.1, 0.5)
        self.is_open = False

    async def _identify(self) -> Identity | None:
        """Return an identity; None without a response, or after a retriable error."""
        was_open, self.is_open = self.is_open, True
        answer = await self._call(init_request(self._id), 4)
        if answer is None or answer.error_code in RETRIABLE:
            self.is_open = was_open
            return None
        if answer.error_code:
            self._member.unexpected("InitProducerId", answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def _end(self, transaction: Transaction, identity: Identity, *, commit: bool) -> None:
        """End the transaction once; without a response its outcome stays unknown."""
        transaction.fate = Fate.COMMITTING if commit else Fate.ABORTED
        request = end_request(self._id, identity, commit=commit)
        answer = await self._call(request, _END_VERSION)
        if answer is None or answer.error_code != ErrorCode.NONE:
            return
        self.is_open = False
        transaction.ends = self._member.home.log_ends()
        if commit:
            transaction.fate = Fate.COMMITTED

    async def _call(self, request: Any, version: int) -> Any:
        """Return the response, or None without one."""
        try:
            return await self._member.connection.call(request, version)
        except NoResponse:
            return None
