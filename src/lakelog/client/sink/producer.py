"""Writes the records of a sink's tasks, each in a transaction that the task leaves open."""

from __future__ import annotations

from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import TRANSACTION
from lakelog.client.errors import ClientError
from lakelog.client.producer.transactional import BoundProducer
from lakelog.client.sink import requests
from lakelog.client.sink.coordinator import ask, check_sink
from lakelog.client.sink.requests import QueryRun, Receipt, RecordCount
from lakelog.protocol.transactions import EndTxnRequest, EndTxnResponse, InitProducerIdResponse

_UNNAMED = "sink"
"""Until the first task; no record is sent before it."""


class SinkProducer(BoundProducer):
    """A `Producer` whose records belong to the transaction of one task of a sink.

    It serves one task after another, and keeps its connections. Records are accepted between `open`
    and `finish`.

    transaction_timeout_ms: limit of the time from the first record of a task to the commit of its
    batch. The broker aborts the transaction then, and the batch cannot be committed.
    settings: of `Producer`, without `acks`, `idempotent` and `transactional_id`.
    """

    def __init__(
        self, bootstrap: str, *, transaction_timeout_ms: int = 600_000, **settings: Any
    ) -> None:
        super().__init__(bootstrap, transactional_id=_UNNAMED, **settings)
        self._transaction_timeout_ms = transaction_timeout_ms
        self._receipt: Receipt | None = None
        self._run: QueryRun | None = None

    @property
    def is_usable(self) -> bool:
        """Whether another task may be opened; not after an error that fenced the producer."""
        return self._sender.fatal is None and not self._is_closed

    def open(self, run: QueryRun, batch: int, partition: int, attempt: int) -> None:
        """Begin the transaction of a task.

        attempt: differs in all attempts of one partition, also in concurrent ones. Waits until the
        transaction of an earlier attempt of that number has been aborted.

        Raises `BatchCommittedError` if the batch is committed: the task has to write nothing.
        Raises `BatchAheadError`, `RunFencedError`, `SinkLimitError`, and INVALID_TXN_STATE while a
        task is open.
        """
        self._expect_usable()
        if self._receipt is not None:
            raise ClientError(ErrorCode.INVALID_TXN_STATE, "another task is open")
        child = run.child_id(batch, partition, attempt)
        with self._topic_lock:
            producer_id, epoch = self._initialised(run, child)
        with self._lock:
            self._sender.begin_transaction(producer_id, epoch, child)
        self._run = run
        self._receipt = Receipt(child, producer_id, epoch, ())

    def finish(self) -> Receipt:
        """Wait until all records are acknowledged; return the receipt of the open transaction.

        The producer may then open another task. Raises the first failure if a record could not be
        written; call `abort` then.
        """
        opened = self._opened()
        self._flush_all()
        with self._lock:
            counts = self._accumulator.written()
        self._receipt = None
        written = tuple(RecordCount(*key, records) for key, records in sorted(counts.items()))
        return opened._replace(written=written)

    def abort(self) -> None:
        """Drop the buffered records and abort the task's transaction, if one is open.

        Raises `ClientError` if the coordinator does not abort it; it ends by its timeout then.
        """
        opened, self._receipt = self._receipt, None
        if opened is None or not self.is_usable:
            return
        self._drop_records()
        assert self._run is not None
        run, where = self._run, f"task {opened.transactional_id!r}"
        request = EndTxnRequest(
            transactional_id=opened.transactional_id,
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            committed=False,
        )

        def work() -> None:
            response = ask(self._cluster, run.sink_id, request, EndTxnResponse)
            check_sink(response.error_code, response.refused, where, response.sink)

        with self._topic_lock:
            self._cluster.retrying_coordinator(run.sink_id, work, TRANSACTION)

    def _initialised(self, run: QueryRun, child: str) -> tuple[int, int]:
        request = requests.open_child(run, child, self._transaction_timeout_ms)

        def work() -> tuple[int, int]:
            response = ask(self._cluster, run.sink_id, request, InitProducerIdResponse)
            where = f"task {child!r}"
            check_sink(response.error_code, response.refused, where, response.sink)
            return response.producer_id, response.producer_epoch

        return self._cluster.retrying_coordinator(run.sink_id, work, TRANSACTION)

    def _expect_open(self) -> None:
        self._opened()

    def _opened(self) -> Receipt:
        self._expect_usable()
        if self._receipt is None:
            raise ClientError(ErrorCode.INVALID_TXN_STATE, "no task is open")
        return self._receipt
