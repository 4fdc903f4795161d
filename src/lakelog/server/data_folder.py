"""The data folder of a broker: its logs, the reserve of disk space, and shortages of both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import closing

from lakelog.server.environment import Environment
from lakelog.server.options import ServeOptions
from lakelog.server.upkeep.shortages import Shortages
from lakelog.storage.files import parse_dir_name
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.folder.space import SpaceReserve
from lakelog.storage.producers.limit import ProducerLimit


class DataFolder:
    """The folder of the option `--data`.

    Args:
        retain_soon: runs retention when space is short.
        over: called when a shortage is over.
    """

    def __init__(
        self,
        options: ServeOptions,
        environment: Environment,
        retain_soon: Callable[[], object],
        over: Callable[[], object],
    ) -> None:
        config, disk, tasks = options.config, environment.disk, environment.tasks
        self._options = options
        self._environment = environment
        producers = ProducerLimit(
            config.get_int("lakelog.producer.ids.max"), config.get_int("producer.id.expiration.ms")
        )
        self.directory = LogDirectory(
            options.data,
            disk,
            environment.clock,
            environment.random,
            max_open_files=environment.open_files_max,
            producers=producers,
        )
        self.reserve = SpaceReserve(
            disk,
            options.data,
            config.get_int("lakelog.disk.reserve.bytes"),
            self.directory.space_guard,
        )
        self.shortages = Shortages(
            options.data, disk, tasks, self.reserve, lambda: tasks.call_soon(retain_soon), over
        )

    def open(self, cluster_id: str | None) -> None:
        """Lock and read the folder, and take the reserve. Raises `StorageError` and `OSError`."""
        self.directory.open(cluster_id, self._options.node_id)
        self.reserve.open()

    def has_logs(self) -> bool:
        """Return whether the folder contains the log of any partition."""
        disk, data = self._environment.disk, self._options.data
        names = disk.list(data) if disk.exists(data) else ()
        return any(parse_dir_name(name) is not None for name in names)

    def space(self) -> tuple[int, int]:
        """Return the total and the usable bytes of the file system."""
        return self._environment.disk.space(self._options.data)

    async def close(self, high_watermarks: Mapping[tuple[str, int], int]) -> None:
        """Close the logs in threads that wait for the device together.

        So one commit of the file system's journal serves all. Nothing else runs beside them.
        """
        offload = self._environment.tasks.offload
        with closing(self.directory.closing(high_watermarks)) as steps:
            for works in steps:
                await asyncio.gather(*(offload("close", work) for work in works))
