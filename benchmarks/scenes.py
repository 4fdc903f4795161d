"""A cluster whose servers are on hosts of their own, its topic, and what each fault has to know."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from acknowledgements import CLIENT, Acknowledgements
from brokers import Broker
from clusters import CLUSTERS, SIZE
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from lakelog.cli.local_cluster.ensemble import Home
from small_disk import SmallDisk
from torture.hosts import CLIENTS, Hosts

TOPIC = "availability"
PARTITIONS = 12
_DISK_BYTES = 512 << 20
_FULL_S = 120.0
_CALL_S = 10.0
_POLL_S = 0.2
_NUMBERS = range(1, SIZE + 1)
BROKER_HOSTS = [f"broker{number}" for number in _NUMBERS]
STORE_HOSTS = [f"store{number}" for number in _NUMBERS]


class Scene:
    """A context manager: a cluster that runs inside, and a producer that writes to it.

    The data folder of each broker is a small file system in memory, which can be filled.
    """

    def __init__(self, kind: str, folder: Path, hosts: Hosts) -> None:
        self.hosts = hosts
        self.peers = BROKER_HOSTS
        self.store_hosts = STORE_HOSTS
        self.everybody = [*BROKER_HOSTS, *STORE_HOSTS, CLIENTS]
        self.numbers = list(_NUMBERS)
        self._folder = folder
        self._kind = kind
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.disks = {number: stack.enter_context(self._disk(number)) for number in _NUMBERS}
            homes = [
                Home(home.address, (*home.prefix, *self.disks[number].inside))
                for number, home in enumerate(self._homes(BROKER_HOSTS), 1)
            ]
            cluster = CLUSTERS[self._kind](self._folder, homes, self._homes(STORE_HOSTS))
            self.cluster = cluster
            stack.callback(self._kill_all)
            cluster.start()
            self._admin = AdminClient({**CLIENT, "bootstrap.servers": cluster.bootstrap})
            config = {"min.insync.replicas": "2"}
            topic = NewTopic(TOPIC, PARTITIONS, replication_factor=SIZE, config=config)
            self._admin.create_topics([topic])[TOPIC].result(_CALL_S)
            self.acknowledgements = stack.enter_context(
                Acknowledgements(cluster.bootstrap, TOPIC, PARTITIONS)
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _disk(self, number: int) -> SmallDisk:
        folder = self._folder / f"broker{number}" / "data"
        folder.mkdir(parents=True)
        return SmallDisk(folder, _DISK_BYTES)

    def _homes(self, names: Sequence[str]) -> list[Home]:
        return [Home(self.hosts.address(name), self.hosts.prefix(name)) for name in names]

    def _kill_all(self) -> None:
        for broker in self.cluster.brokers:
            broker.kill()
        self.cluster.stop()

    def broker(self, number: int) -> Broker:
        return self.cluster.brokers[number - 1]

    def host(self, number: int) -> str:
        """Return the name of the host of a node; ids of controllers follow ids of brokers."""
        return (BROKER_HOSTS + STORE_HOSTS)[number - 1]

    def controller(self) -> int:
        return self.cluster.controller()

    def controller_host(self) -> str:
        return self.host(self.controller())

    def leader(self) -> int:
        """Return a broker that leads partitions and is not the controller."""
        return self._others_than_controller()[0]

    def follower(self) -> int:
        """Return another such broker."""
        return self._others_than_controller()[1]

    def _others_than_controller(self) -> list[int]:
        controller = self.controller()
        return [number for number in self.numbers if number != controller]

    def led_by(self, numbers: Sequence[int]) -> list[int]:
        """Return the partitions that these brokers lead."""
        return [index for index, each in self._partitions().items() if each.leader in numbers]

    def log_folder(self, number: int, partition: int) -> Path:
        """Return the folder of a replica, as processes outside of its file system reach it."""
        return self.disks[number].seen_folder / f"{TOPIC}-{partition}"

    def await_full(self) -> bool:
        """Wait until each broker leads what prefers it, with all replicas in sync, and is steady.

        Returns whether it is; it may never be, after some faults.
        """
        deadline = time.monotonic() + _FULL_S
        while not self._is_full():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return self.acknowledgements.await_steady(time.monotonic(), _FULL_S)

    def _partitions(self) -> dict[int, PartitionMetadata]:
        return self._admin.list_topics(TOPIC, timeout=_CALL_S).topics[TOPIC].partitions

    def _is_full(self) -> bool:
        try:
            partitions = self._partitions().values()
        except KafkaException:
            return False
        if len(partitions) < PARTITIONS or any(len(each.isrs) < SIZE for each in partitions):
            return False
        if all(each.leader == each.replicas[0] for each in partitions):
            return True
        with suppress(KafkaException):
            self._admin.elect_leaders(ElectionType.PREFERRED).result(_CALL_S)
        return False
