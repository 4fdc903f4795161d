"""Lookups of offsets by time (KIP-79) and by leader epoch (KIP-101), compared with the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.protocol.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.clients.consumers.reading import EARLIEST, list_offset
from simulator.network.connection import NoResponse

if TYPE_CHECKING:
    from simulator.clients.client import Client


async def look_up_time(client: Client, topic_partition: Place) -> None:
    """Look up the first record at or after a time, and compare with the records known so far."""
    partition = client.history.partition(topic_partition)
    known = client.history.timestamps(topic_partition)
    if not known:
        return
    wanted = known[client.rng.choice(sorted(known))] + client.rng.choice((-1, 0, 0, 1))
    entry = ListOffsetsPartition(partition_index=topic_partition[1], timestamp=wanted)
    topic = ListOffsetsTopic(name=topic_partition[0], partitions=[entry])
    cuts = partition.cuts
    try:
        response = await client.connection.call(ListOffsetsRequest(topics=[topic]), 7)
    except NoResponse:
        return
    answer = response.topics[0].partitions[0]
    if answer.error_code or partition.cuts != cuts or partition.hidden:
        return
    found: int = answer.offset
    passed_over = [
        offset
        for offset, time in known.items()
        if time >= wanted and offset >= partition.start and not 0 <= found <= offset
    ]
    client.findings.counts["lookups by time"] += 1
    client.findings.expect(
        Law.AT_TIME,
        not passed_over and known.get(found, wanted) >= wanted,
        f"{topic_partition}: the first record at or after {wanted} was found at {found}, "
        f"and is at {min(passed_over, default='another offset')}",
    )


async def look_up_epoch(client: Client, topic_partition: Place) -> None:
    """Look up the end of a leader epoch, and compare with the epochs of batches read so far."""
    partition = client.history.partition(topic_partition)
    known = dict(partition.epochs)
    asked = client.rng.randint(0, max(known.values(), default=0) + 1)
    entry = OffsetForLeaderPartition(partition=topic_partition[1], leader_epoch=asked)
    topic = OffsetForLeaderTopic(topic=topic_partition[0], partitions=[entry])
    cuts, asked_at = partition.cuts, client.now
    try:
        response = await client.connection.call(OffsetForLeaderEpochRequest(topics=[topic]), 4)
    except NoResponse:
        return
    answer = response.topics[0].partitions[0]
    # A leader that has not heard of its successor does not know the epoch of that either.
    if answer.error_code or partition.cuts != cuts or client.may_be_stale(asked_at):
        return
    epoch, end = answer.leader_epoch, answer.end_offset
    wrong = sorted(
        offset
        for offset, of in known.items()
        if offset >= partition.start and (offset < end) != (of <= epoch) and epoch >= 0
    )
    if wrong:  # a deleted epoch ends at the log start offset
        start = await list_offset(client, topic_partition, EARLIEST, committed=False)
        client.history.begins(topic_partition, start)
        wrong = [offset for offset in wrong if offset >= start]
    missed = [of for of in known.values() if (epoch < of <= asked if epoch >= 0 else asked <= of)]
    client.findings.counts["lookups by epoch"] += 1
    client.findings.expect(
        Law.EPOCH_END,
        epoch <= asked and not wrong and not missed,
        f"{topic_partition}: the response to epoch {asked} is {epoch}, which ends at {end}: "
        f"batches at {wrong} and epochs {sorted(set(missed))} contradict it",
    )
