"""The final reader: it reads each partition to its end, and each committed offset."""

from __future__ import annotations

from simulator.checkers.observations import Place
from simulator.checkers.partition_check import check_partition, check_transactions
from simulator.clients.consumers.reading import LATEST, list_offset, read_all
from simulator.clients.context import ClientContext
from simulator.clients.groups.member import GroupClient
from simulator.clients.producers.transaction_requests import TIMEOUT_MS

_PATIENCE_S = 2 * TIMEOUT_MS / 1000
"""How long to wait for markers: another transaction may be open before a decided one."""


class Inspector(GroupClient):
    """Checks all `partitions` of one broker, and the offsets of its groups."""

    def __init__(self, context: ClientContext, name: str, partitions: list[Place]) -> None:
        super().__init__(context, name, "", partitions)

    async def run(self) -> None:
        committed: set[bytes] = set()
        for partition in self.topic_partitions:
            await self._await_markers(partition)
            for only_committed in (False, True):
                found = await read_all(self, partition, committed=only_committed)
                check_partition(self.history, partition, found, committed=only_committed)
                if only_committed:
                    committed.update(found.values())
                self.note("read all", partition, only_committed, len(found))
        check_transactions(self.history, committed, self.topic_partitions)
        for group, partition in self.offsets.groups():
            if self.context.brokers.home_of(group) is self.home:
                self.group = group
                await self.fetch_offset(partition, insist=True)

    async def _await_markers(self, partition: Place) -> None:
        """Wait until all records of committed transactions are below the last stable offset.

        The response to EndTxn reports the decision; markers follow and have to become durable.
        """
        end = self.history.committed_end(partition)
        until = self.now + _PATIENCE_S
        while await list_offset(self, partition, LATEST, committed=True) < end:
            if self.now >= until:
                return
            await self.pause(0.1, 0.3)
