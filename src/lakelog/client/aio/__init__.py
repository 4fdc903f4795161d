"""The client for programs with an event loop of asyncio.

```python
async with AsyncConsumer("localhost:9092", group="billing") as consumer:
    await consumer.subscribe(["orders"])
    table = await consumer.poll_arrow()
```

Each object makes the calls of its synchronous twin in one thread of its own, in their order.
"""

from __future__ import annotations

from lakelog.client.aio.consumer import AsyncConsumer
from lakelog.client.aio.producer import AsyncProducer
from lakelog.client.aio.transactional import AsyncTransactionalProducer

__all__ = ["AsyncConsumer", "AsyncProducer", "AsyncTransactionalProducer"]
"""Entry points; each object is for one event loop."""
