"""The transaction of one micro-batch, in the driver: exactly once on any broker with KIP-890.

The control record (`control.py`) is the committed offset of a partition without records, in a group
named like the transactional id. It is committed in the same transaction as the records.

InitProducerId before each batch aborts the transaction of an earlier run, or completes its commit,
and fences its driver and tasks; only then is the control record read. After an EndTxn without an
answer the driver repeats EndTxn and reads the control record; it never aborts.
"""

from __future__ import annotations

import time

from lakelog.client.admin import Admin
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, fetch_committed
from lakelog.client.errors import ClientError, TopicNotFoundError, UnsupportedError, pauses
from lakelog.client.producer.transactional import TransactionalProducer
from lakelog.protocol.commit_sets import SINK_TOPIC
from lakelog.spark.sink.control import Batch, Content, Control, Step, check_repeated, next_step
from lakelog.spark.sink.options import (
    FencedError,
    SinkOptions,
    UnknownOutcomeError,
    UnsupportedDeliveryError,
)
from lakelog.spark.sink.task import FENCED, fenced

_CONTROL = (SINK_TOPIC, 0)
"""Of an existing partition, because brokers commit no other offsets."""
_ID_PREFIX = "lk-sink-"


class BatchTransaction:
    """The transaction of one micro-batch, in the driver."""

    def __init__(self, options: SinkOptions, sink_id: str, batch: Batch) -> None:
        self._options = options
        self._sink_id = sink_id
        self._batch = batch
        self.transactional_id = _ID_PREFIX + sink_id
        self._began_s = 0.0
        self._is_open = False
        self._control: Control | None = None
        self._cluster = Cluster(options.bootstrap, client_id=options.client_id)
        self._producer = TransactionalProducer(
            options.bootstrap,
            self.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            auto_create=False,
            client_id=options.client_id,
        )

    def __enter__(self) -> BatchTransaction:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._is_open:
                self._producer.abort()
        except ClientError as failure:
            if error is not None:
                error.add_note(f"aborting the transaction: {failure}")
        finally:
            self._cluster.close()
            self._producer.leave()

    def share(self) -> tuple[int, int]:
        """Return producer id and epoch, for the tasks."""
        return self._producer.share()

    def begin(self) -> Step:
        """Fence earlier runs, then decide about the batch by the control record.

        Raises `SinkError` and `ClientError`.
        """
        try:
            self._producer.begin()
        except UnsupportedError as error:
            raise UnsupportedDeliveryError(
                f"option 'delivery': {error.message}, which exactly-once in foreachBatch needs. "
                "Upgrade the broker (lakelog, or Apache Kafka 4 with transaction.version 2), or "
                "set 'delivery' to at-least-once"
            ) from error
        self._began_s = time.monotonic()
        # In this order: a transaction of an earlier run is decided before its outcome is read.
        self._control = self._read()
        step = next_step(self._sink_id, self._control, self._batch, self._options.generation)
        self._is_open = step is Step.WRITE
        return step

    @property
    def is_first(self) -> bool:
        """Whether the sink has committed no batch."""
        return self._control is None

    def check_repeated(self, content: Content) -> None:
        """Raise `BatchOrderError` if a batch to be skipped has other rows than the committed one.

        content: the content of the batch.
        """
        assert self._control is not None, "only a committed batch is skipped"
        check_repeated(
            self._sink_id,
            self._batch.number,
            self._control.content,
            content,
            self._options.repeated,
            self._options.generation,
        )

    def commit(self, content: Content) -> None:
        """Commit the records together with the control record. Raises `SinkError`."""
        control = Control(
            query_id=self._batch.query_id,
            run_id=self._batch.run_id,
            generation=self._options.generation,
            next_batch=self._batch.number + 1,
            content=content,
        )
        try:
            self._add_control(control)
            self._end(control)
        except ClientError as error:
            if error.code in FENCED:
                raise self.fenced(error) from error
            raise

    @property
    def is_overdue(self) -> bool:
        """Whether the broker has aborted the transaction because of its timeout."""
        return self._elapsed_ms() >= self._options.transaction_timeout_ms

    def fenced(self, error: Exception) -> FencedError:
        """Return the error for a transaction that ended without this process."""
        return fenced(error, self._options, self._elapsed_ms())

    def _add_control(self, control: Control) -> None:
        row = Committed(control.next_batch, control.to_text())
        try:
            self._producer.partitions(SINK_TOPIC)
        except TopicNotFoundError:
            with Admin(self._options.bootstrap) as admin:
                admin.topics.create(SINK_TOPIC, partitions=1, exist_ok=True)
        self._producer.send_offsets(self.transactional_id, {_CONTROL: row})

    def _end(self, control: Control) -> None:
        """Repeat EndTxn until the outcome is known. Raises `UnknownOutcomeError`."""
        # From here on nothing may abort: an EndTxn without an answer may have committed.
        self._is_open = False
        for pause in pauses():
            try:
                self._producer.commit()
                return
            except ClientError as error:
                if not error.retriable:
                    raise
                if self._is_committed(control):
                    return
                if self.is_overdue:
                    raise UnknownOutcomeError(
                        f"no answer whether batch {self._batch.number} of sink {self._sink_id!r} "
                        f"is committed ({error}): start the query again when the broker is "
                        "reachable; it skips the batch if it is"
                    ) from error
            time.sleep(pause)
        raise AssertionError("pauses never end")

    def _is_committed(self, control: Control) -> bool:
        """Return whether the control record is that of this batch; false if nothing answers."""
        try:
            return self._read() == control
        except ClientError:
            return False

    def _read(self) -> Control | None:
        # require_stable waits for the decision about a pending transaction (KIP-447).
        committed = fetch_committed(self._cluster, self.transactional_id, [_CONTROL])
        row = committed.get(_CONTROL)
        return None if row is None else Control.from_text(row.offset, row.metadata)

    def _elapsed_ms(self) -> float:
        return (time.monotonic() - self._began_s) * 1000
