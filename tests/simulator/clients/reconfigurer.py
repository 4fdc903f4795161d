"""An administrator that changes preferred leaders, settings and brokers while others write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.cluster import UnregisterBrokerRequest
from lakelog.protocol.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from lakelog.protocol.replicas import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from simulator.checkers.observations import Place
from simulator.clients.client import RETRIABLE, Client
from simulator.clients.context import ClientContext
from simulator.network.connection import NoResponse

_TOPIC, _BROKER = 2, 4
_OF_TOPIC = (
    ("min.insync.replicas", ("1", "2")),
    ("internal.segment.bytes", ("1500", "20000")),
)
_OF_BROKERS = (
    # Longer than all leaps of a clock together: no record of a world may expire.
    ("log.retention.ms", ("60000000", "70000000")),
    ("min.insync.replicas", ("1", "2")),
)
_EXPECTED = RETRIABLE | {
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,  # a broker of it is fenced
    ErrorCode.REASSIGNMENT_IN_PROGRESS,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
}
_REFUSED = RETRIABLE | {
    ErrorCode.INVALID_REQUEST,  # it runs
    ErrorCode.BROKER_ID_NOT_REGISTERED,
}


class Reconfigurer(Client):
    """Changes min.insync.replicas, segments, preferred leaders, and settings of all brokers.

    It also unregisters brokers that are down or fenced; they register again when they start.
    """

    def __init__(self, context: ClientContext, name: str, partitions: Sequence[Place]) -> None:
        super().__init__(context, name)
        self._places = partitions
        self._brokers = range(1, context.plan.replicas + 1)

    def replaced(self) -> Reconfigurer:
        return Reconfigurer(self.context, self.next_name, self._places)

    async def run(self) -> None:
        while not self.conditions.is_settling:
            await self.pause(0.3, 3.0)
            choice = self.rng.random()
            if choice < 0.2:
                await self._unregister_lost()
            elif choice < 0.5:
                await self._move(self.some_place(self._places))
            elif choice < 0.8:
                await self._configure(_TOPIC, self._places[0][0], _OF_TOPIC)
            else:
                await self._configure(_BROKER, "", _OF_BROKERS)

    async def _move(self, partition: Place) -> None:
        """Make another replica the preferred leader of a partition, or cancel a reassignment."""
        replicas = self.rng.sample(self._brokers, len(self._brokers))
        try:
            code = await self._reassign(partition, None if self.rng.random() < 0.2 else replicas)
        except NoResponse:
            return
        if code not in _EXPECTED and code != 0:
            self.unexpected("AlterPartitionReassignments", code)

    async def _reassign(self, topic_partition: Place, replicas: list[int] | None) -> int:
        """Return the error code. Raises `NoResponse`."""
        partition = ReassignablePartition(partition_index=topic_partition[1], replicas=replicas)
        topic = ReassignableTopic(name=topic_partition[0], partitions=[partition])
        request = AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=[topic])
        response = await self.connection.call(request, 1)
        code: int = response.error_code or response.responses[0].partitions[0].error_code
        return code

    async def _unregister_lost(self) -> None:
        for broker_id in self._brokers:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            try:
                code = (await self.connection.call(request, 0)).error_code
            except NoResponse:
                return
            if code == 0:
                self.findings.counts["brokers unregistered"] += 1
            elif code not in _REFUSED:
                self.unexpected("UnregisterBroker", code)

    async def _configure(self, kind: int, name: str, settings: Any) -> None:
        setting, values = self.rng.choice(settings)
        change = IncrementalConfig(name=setting, config_operation=0, value=self.rng.choice(values))
        resource = IncrementalResource(resource_type=kind, resource_name=name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        try:
            code = (await self.connection.call(request, 1)).responses[0].error_code
        except NoResponse:
            return
        if code not in RETRIABLE and code != 0:
            self.unexpected(f"IncrementalAlterConfigs of {setting}", code)
