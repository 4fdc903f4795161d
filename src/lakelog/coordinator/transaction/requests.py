"""Requests about transactional ids, and their needs.

A decision may need a producer id, or the ends of logs. Once the need is met, the request is decided
again, because the state may have changed meanwhile.

Producer ids are reserved one at a time for each transactional id. A client repeats a request that
takes long. A request that arrives while another one reserves an id for the same transactional id
waits, and is then decided again: the first request may have changed whether the second needs an id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.requests import ClientRequest, log_bug
from lakelog.coordinator.shard import Reply, coordinator_code
from lakelog.coordinator.transaction.state import NO_PRODUCER_ID
from lakelog.runtime.api import Tasks

NO_SEQUENCE = -1


class WrittenTo(NamedTuple):
    """A partition that a child wrote to, with its identity."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int


LastSequences = Mapping[WrittenTo, int]
"""The last sequence of each open transaction, `NO_SEQUENCE` without one."""


class LogEnds(NamedTuple):
    """A need of a request: the last sequences of open transactions, from the logs."""

    targets: list[WrittenTo]


class ProducerLogs(Protocol):
    """The transaction coordinator's access to the producers of partitions on all brokers."""

    def last_sequences(self, targets: Sequence[WrittenTo]) -> Awaitable[LastSequences]:
        """Return the last sequence of each open transaction, as the leaders know it.

        A partition that does not exist has `NO_SEQUENCE`. Raises `KafkaError` if a leader does not
        answer.
        """
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Request(ClientRequest):
    """A request about one transactional id.

    producer_id: reserved for this request, or `NO_PRODUCER_ID`.
    sequences: last sequences of the winners of a commit set, once the logs have been read.
    """

    producer_id: int = NO_PRODUCER_ID
    sequences: LastSequences | None = None


class Needs:
    """Meets the needs of requests, and has them decided again."""

    def __init__(
        self, tasks: Tasks, reservations: ProducerIdReservations, logs: ProducerLogs
    ) -> None:
        self._tasks = tasks
        self._reservations = reservations
        self._logs = logs
        self._looking: set[Reply[None]] = set()

    def provide(
        self, ask: Callable[[Request], None], need: NewProducerId | LogEnds, request: Request
    ) -> None:
        """Begin to meet the need, and then `ask` the request again, or refuse it."""
        if isinstance(need, LogEnds):
            assert request.sequences is None, "the logs are read once for a request"
            looking = self._look(ask, need, request)
            task = self._tasks.spawn(looking, name=f"records of {request.key}")
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        else:
            assert request.producer_id == NO_PRODUCER_ID, "a request uses one producer id"
            decide = partial(_decide_with, ask, request)
            self._reservations.reserve(request.key, decide, request.refuse)

    async def _look(self, ask: Callable[[Request], None], need: LogEnds, request: Request) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            request.sequences = await self._logs.last_sequences(need.targets)
            code = ErrorCode.NONE
        except (KafkaError, OSError):
            # Retriable: a leader is being elected, or its broker starts again.
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        except Exception:  # noqa: BLE001 - logged; the request is refused
            log_bug("reading the logs", request.key, transactional_id=request.key)
        finally:
            if code is not ErrorCode.NONE:
                request.refuse(code)
        if code is ErrorCode.NONE:
            _decide_again(ask, request)


def _decide_with(ask: Callable[[Request], None], request: Request, producer_id: int) -> None:
    request.producer_id = producer_id
    _decide_again(ask, request)


def _decide_again(ask: Callable[[Request], None], request: Request) -> None:
    """Decide a request again, or refuse it: no exception reaches the caller, which awaits it."""
    try:
        ask(request)
    except Exception:  # noqa: BLE001 - logged; the request is refused
        request.refuse_bug("deciding again", transactional_id=request.key)


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
