"""Reserves producer ids for requests, one at a time for each transactional id.

A client repeats a request that takes long. A request that arrives while another one reserves an id
for the same transactional id waits, and is then decided again: the first request may have changed
whether the second needs an id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.requests import log_bug
from lakelog.coordinator.shard import coordinator_code
from lakelog.coordinator.transaction.state import NO_PRODUCER_ID
from lakelog.runtime.api import Tasks


class NewProducerId(NamedTuple):
    """A need of a request: one more producer id."""


class _Waiting(NamedTuple):
    decide: Callable[[int], None]
    refuse: Callable[[ErrorCode], None]


class ProducerIdReservations:
    """Requests that wait for a producer id, by transactional id.

    Args:
        new_producer_id: reserves a producer id, which takes time; raises `KafkaError`.
    """

    def __init__(self, tasks: Tasks, new_producer_id: Callable[[], Awaitable[int]]) -> None:
        self._tasks = tasks
        self._new_producer_id = new_producer_id
        self._waiting: dict[str, list[_Waiting]] = {}

    def reserve(
        self,
        transactional_id: str,
        decide: Callable[[int], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        """Call `decide` with a reserved producer id, or `refuse` if none can be reserved.

        decide: raises nothing, because other requests may wait for the same id.

        If an earlier request of this transactional id is waiting, call `decide` with
        `NO_PRODUCER_ID` after it; the decision may then reserve again.
        """
        waiting = _Waiting(decide, refuse)
        if transactional_id in self._waiting:
            self._waiting[transactional_id].append(waiting)
            return
        self._waiting[transactional_id] = []
        name = f"producer id for {transactional_id}"
        self._tasks.spawn(self._reserve(transactional_id, waiting), name=name)

    async def _reserve(self, transactional_id: str, first: _Waiting) -> None:
        code, new_id = ErrorCode.UNKNOWN_SERVER_ERROR, NO_PRODUCER_ID
        try:
            new_id = await self._new_producer_id()
            code = ErrorCode.NONE
        except KafkaError as error:
            code = coordinator_code(error.code)
        except Exception:  # noqa: BLE001 - logged; the requests are refused
            step = "reserving a producer id"
            log_bug(step, transactional_id, transactional_id=transactional_id)
        finally:
            others = self._waiting.pop(transactional_id)
            if code is not ErrorCode.NONE:
                for waiting in (first, *others):
                    waiting.refuse(code)
        if code is ErrorCode.NONE:
            first.decide(new_id)
            for waiting in others:
                waiting.decide(NO_PRODUCER_ID)
