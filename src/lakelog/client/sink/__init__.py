"""The client's half of exactly-once sinks: batches that many producers write and one commit ends.

```python
with Sink("localhost:9092", "orders-by-day") as sink, SinkProducer("localhost:9092") as producer:
    run = sink.begin(query_id, run_id, batch)          # in each task, and safe to repeat
    if not run.has_committed(batch):
        producer.open(run, batch, partition, attempt)
        producer.send("orders-by-day", b"...")
        receipt = producer.finish()                    # flushed; the transaction stays open
    sink.commit(run, batch, receipts)                  # in the driver: all receipts, or none
```

`coordinator` asks the coordinator of a sink id and has the reasons of refusals, `producer` writes
the records of one task, and `requests` has the values that tasks return to their driver.
"""

from __future__ import annotations

from lakelog.client.admin.transactions import SinkChild, SinkControl
from lakelog.client.sink.coordinator import (
    AnotherQueryError,
    BatchAheadError,
    BatchCommittedError,
    ContentDiffersError,
    NotASinkError,
    RecordsLostError,
    RunFencedError,
    RunLimitError,
    Sink,
    SinkError,
    SinkLimitError,
    TransactionNotOpenError,
)
from lakelog.client.sink.producer import SinkProducer
from lakelog.client.sink.requests import QueryRun, Receipt, RecordCount

__all__ = [
    "AnotherQueryError",
    "BatchAheadError",
    "BatchCommittedError",
    "ContentDiffersError",
    "NotASinkError",
    "QueryRun",
    "Receipt",
    "RecordCount",
    "RecordsLostError",
    "RunFencedError",
    "RunLimitError",
    "Sink",
    "SinkChild",
    "SinkControl",
    "SinkError",
    "SinkLimitError",
    "SinkProducer",
    "TransactionNotOpenError",
]
