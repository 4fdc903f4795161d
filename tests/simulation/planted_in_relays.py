"""Bugs of the broker between a leader and a controller that it does not reach.

In worlds of four brokers the schedule "late ISR" has a leader call the controller through one of
them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.brokers import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
)
from lakelog.server.controller.relays import PATIENCE_S, Relays
from lakelog.wire.schema import Message
from simulation.planted_in_clusters import bug

_PLAN: Any = {"seeds": 20, "seconds": 20.0, "brokers": 4}


@bug("a relay that repeats proposals", ("idempotent",), ("late ISR",), **_PLAN)
def relay_that_repeats_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader hears of the last attempt only, and that it was refused."""
    send_on = Relays.send_on

    async def repeating(self: Relays, request: Message, response_type: Any) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while True:
            response = await send_on(self, request, response_type)
            is_over = loop.time() >= deadline
            if is_over or response.error_code != ErrorCode.REQUEST_TIMED_OUT:
                return response
            await asyncio.sleep(0.1)

    monkeypatch.setattr(Relays, "send_on", repeating)


@bug("a relay that answers for a lost controller", ("idempotent",), ("late ISR",), **_PLAN)
def relay_that_answers_for_a_lost_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its response it refuses the proposals, which may still arrive and be accepted."""
    send_on = Relays.send_on

    async def answering(self: Relays, request: Message, response_type: Any) -> Any:
        response = await send_on(self, request, response_type)
        is_lost = response.error_code == ErrorCode.REQUEST_TIMED_OUT
        if not (is_lost and isinstance(request, AlterPartitionRequest)):
            return response
        topics = [
            AlteredTopic(topic_id=topic.topic_id, partitions=[*map(_refused, topic.partitions)])
            for topic in request.topics
        ]
        return AlterPartitionResponse(topics=topics)

    monkeypatch.setattr(Relays, "send_on", answering)


def _refused(proposed: PartitionData) -> AlteredPartition:
    return AlteredPartition(
        partition_index=proposed.partition_index, error_code=ErrorCode.INELIGIBLE_REPLICA
    )
