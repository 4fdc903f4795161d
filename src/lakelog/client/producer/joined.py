"""A producer that writes into a transaction which another process began and will end.

```python
owner.begin()                                     # a TransactionalProducer, in the driver
with JoinedProducer("localhost:9092", "sink-1", owner.share()) as producer:    # in each task
    producer.send("orders", b"v", partition=0)
owner.commit()
```

All processes share one producer id and epoch, and a broker numbers the records of a producer per
partition. Therefore **one process at a time may write to a partition**, and only once in a
transaction: a second one begins at sequence 0 again, and its batches may pass as repetitions of the
first one's. The broker cannot detect that; the caller must prevent it.
"""

from __future__ import annotations

from typing import Any

from lakelog.client.producer.api import Producer


class JoinedProducer(Producer):
    """A `Producer` within the transaction of another process; `close` does not end it.

    identity: producer id and epoch of the transaction. settings: of `Producer`, without `acks` and
    `idempotent`. After the transaction has ended, or a newer producer has its id, `flush` raises
    `NotWrittenError` or `OutcomeUnknownError` with PRODUCER_FENCED or INVALID_PRODUCER_EPOCH.
    """

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        identity: tuple[int, int],
        **settings: Any,
    ) -> None:
        super().__init__(bootstrap, transactional_id=transactional_id, **settings)
        with self._lock:
            self._sender.begin_transaction(*identity)
