"""Batches and Produce requests of simulated producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.records.builder import BatchBuilder
from simulator.checkers.compaction import TOMBSTONE
from simulator.checkers.observations import Place

if TYPE_CHECKING:
    from simulator.clients.client import Client

NO_PRODUCER = (-1, -1, -1)


def batch_of(
    client: Client,
    values: list[bytes],
    producer: tuple[int, int, int] = NO_PRODUCER,
    *,
    transactional: bool = False,
    keyed: bool = False,
) -> bytes:
    """Return a batch of these values; `producer` is id, epoch and base sequence.

    With `keyed`, the text before the first slash is the key. A tombstone has no value; a header
    has its name.
    """
    builder = BatchBuilder(client.rng.choice((0, 0, 0, 1)))
    now_ms = client.context.simulator.wall_ms()
    for value in values:
        key, _, name = value.partition(b"/")
        if keyed and name.startswith(TOMBSTONE):
            builder.append(now_ms, key, None, [("name", value)])
        else:
            builder.append(now_ms, key if keyed else None, value)
    return bytes(builder.build(*producer, is_transactional=transactional))


def produce_request(
    partition: Place, batch: bytes, *, acks: int = -1, transaction: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=partition[1], records=batch)
    return ProduceRequest(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=partition[0], partition_data=[data])],
    )


def answer_of(response: Any) -> Any:
    """Return the part of the response for the only partition."""
    return response.responses[0].partition_responses[0]
