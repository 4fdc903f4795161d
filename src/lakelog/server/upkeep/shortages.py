"""Shortages of the broker: space in the data folder, file descriptors, and archived records.

Failed operations are reported with `note`. One log line marks the start of a shortage, another its
end; in between the broker is not ready and creates no topics. A failed operation is answered with
an error that clients retry, so nothing goes offline. During a shortage a thread writes a probe file
every second, because free space alone does not show quotas or inodes.

A device that has failed is no shortage: it lasts until the broker starts again
(`server/data_folder.py`).

An operation that frees space and lacks some itself uses the reserve. Once that is spent, the disk
counts as full until the reserve is allocated again.

Without the archive job, records that retention keeps only because a table does not have them yet
fill the disk in the end. The broker logs a line when retention of a partition begins to wait, one
when that ends, and one in each round in which the kept records take more than the free space.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelog.base.errors import (
    DESCRIPTORS_ADVICE,
    SPACE_ADVICE,
    ErrorCode,
    KafkaError,
    is_shortage,
    lacks_descriptors,
    no_space,
)
from lakelog.base.events import event
from lakelog.replica.partition import Partition
from lakelog.runtime.api import Disk, File, Tasks, Timer
from lakelog.storage.files import PROBE, remove_if_exists
from lakelog.storage.folder.space import HEADROOM_BYTES, SpaceReserve

logger = logging.getLogger(__name__)

SPACE, DESCRIPTORS = "disk", "descriptors"
"""The names of the shortages, and of the checks of /readyz for them."""
_PROBE_S = 1.0
_LOG_BYTES = 16 << 10
"""Bytes that the files of one new partition take at least."""


class Shortages:
    """The shortages of one broker, until `stop`.

    Args:
        folder: the data folder.
        reserve: the folder's.
        filled: called when the disk is full, so that space is freed at once.
        ended: called when the last shortage has ended, so that waiting work is done.
    """

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        tasks: Tasks,
        reserve: SpaceReserve,
        filled: Callable[[], object],
        ended: Callable[[], object],
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._tasks = tasks
        self._reserve = reserve
        self._filled = filled
        self._ended = ended
        self._freeing: asyncio.Future[bool] | None = None
        self._reasons: dict[str, str] = {}
        self._failure = ""
        self._is_touching = False
        self._timer: Timer | None = None
        self._stopped = False

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of the current shortages, by `SPACE` and `DESCRIPTORS`.

        A failure of the device is the reason by `SPACE`, until the broker stops.
        """
        return {**self._reasons, **({SPACE: self._failure} if self._failure else {})}

    @property
    def has_failed(self) -> bool:
        """Whether the device has failed since the start."""
        return bool(self._failure)

    @property
    def is_full(self) -> bool:
        """Whether the disk is full."""
        return SPACE in self._reasons

    def note(self, error: BaseException | None) -> None:
        """Note a failed operation; other errors than shortages are ignored."""
        if self._stopped or not is_shortage(error):
            return
        kind = DESCRIPTORS if lacks_descriptors(error) else SPACE
        if kind in self._reasons:
            return
        if kind == SPACE:
            reason = (
                f"the file system of {self._folder} is full ({error.strerror}; {self._free()} B "
                f"free): writes fail until there is space; {SPACE_ADVICE}"
            )
            logger.error("%s", reason, extra=event("log_directory_full", code="LL0306"))
        else:
            reason = (
                f"the process has no file descriptor left ({error.strerror}): {DESCRIPTORS_ADVICE}"
            )
            logger.error("%s", reason, extra=event("descriptors_exhausted", code="LL0306"))
        self._reasons[kind] = reason
        if self._timer is None:
            self._timer = self._tasks.call_later(_PROBE_S, self._probe_soon)
        if kind == SPACE:
            self._filled()

    def note_failed_device(self) -> None:
        """Note that a write has failed for another reason; such a device is not written again."""
        if not self._failure:
            self._failure = (
                f"a write to {self._folder} failed: other brokers take over its partitions where "
                "they can; check the device, and restart the broker"
            )
            logger.error("%s", self._failure, extra=event("log_directory_failed", code="LL0306"))

    def try_device(self) -> None:
        """Have a thread write and sync a small file, and note a shortage that it meets.

        An idle broker would not notice that it cannot write.
        """
        if self._stopped or self._reasons or self._is_touching:
            return
        self._is_touching = True
        self._tasks.offload("probe", self._touch).add_done_callback(self._on_touched)

    def _touch(self) -> None:
        with self._probe_file() as file:
            file.write_at(0, b"\0")
            file.sync()

    def _on_touched(self, done: asyncio.Future[None]) -> None:
        self._is_touching = False
        error = done.exception()
        self.note(error)
        # `Disk` reports failed writes and syncs only. A file system that the kernel has made
        # read-only after an error creates no file (EROFS).
        if isinstance(error, OSError) and not is_shortage(error):
            self.note_failed_device()

    def note_full(self) -> None:
        """Note that the metadata log has no space, or that the reserve is spent."""
        self.note(no_space(str(self._folder)))

    def allocate_reserve(self) -> None:
        """Have a thread allocate the missing part of the reserve; called periodically.

        A spent reserve is allocated by the probe.
        """
        if not self._reserve.is_held and not self._reserve.is_spent:
            work = self._tasks.offload("reserve", self._reserve.renew)
            work.add_done_callback(_log_failed_allocation)

    async def free_reserve(self) -> bool:
        """Free the reserve for an operation that frees space and has failed.

        Return whether it may be repeated: it failed for want of space, and there is some now.
        """
        if not self.is_full:
            return False
        if self._freeing is None:
            self._freeing = self._tasks.offload("reserve", self._reserve.free)
        freeing = self._freeing
        try:
            # Shielded, because several operations wait for the same thread, and one of them may be
            # cancelled.
            return await asyncio.shield(freeing)
        except OSError as error:
            logger.warning(
                "the disk reserve cannot be freed: %s", error, extra=event("disk_reserve_failed")
            )
            return False
        finally:
            if self._freeing is freeing:
                self._freeing = None

    def check_reserve(self) -> None:
        """Check that an operation that takes space may run.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR) while the free space is kept for operations that
        free more.
        """
        if self._reserve.is_spent:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._reasons.get(SPACE, "full disk"))

    def check_capacity(self, partitions: int = 0) -> None:
        """Check that the disk has capacity for `partitions` new partitions, 16 KiB each.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR) during any shortage, and without that space.
        """
        for reason in self.reasons.values():
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        needed_bytes = partitions * _LOG_BYTES
        if partitions and self._free() < needed_bytes:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partitions} new partitions need {needed_bytes} B on the file system of "
                f"{self._folder}; it has {self._free()} B",
            )

    def stop(self) -> None:
        """End the probes; later failures are not noted."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _free(self) -> int:
        return self._disk.space(self._folder)[1]

    def _probe_soon(self) -> None:
        self._timer = None
        work = self._tasks.offload("probe", self._probe)
        work.add_done_callback(lambda done: self._on_probed(done.exception()))

    def _probe(self) -> None:
        """Renew a spent reserve; write and remove a file. Raises `OSError`. In a thread."""
        if self._reserve.is_spent:
            self._reserve.renew()
            self._reserve.space_guard.check()
        with self._probe_file() as file:
            # A file system may accept a small file while it is as good as full; the shortage would
            # begin and end every second.
            if SPACE in self._reasons and self._free() < HEADROOM_BYTES:
                raise no_space(str(self._folder / PROBE))
            file.write_at(0, bytes(HEADROOM_BYTES if SPACE in self._reasons else 1))

    @contextmanager
    def _probe_file(self) -> Iterator[File]:
        """Create a file that is removed afterwards."""
        path = self._folder / PROBE
        file = self._disk.open(path, create=True)
        try:
            yield file
        finally:
            file.close()
            remove_if_exists(self._disk, path)

    def _on_probed(self, failure: BaseException | None) -> None:
        if self._stopped:
            return
        if lacks_descriptors(failure):
            self.note(failure)
        elif failure is not None:
            self._end(DESCRIPTORS)  # the probe opened its file, or failed for another reason
        else:
            for kind in list(self._reasons):
                if kind != SPACE or not self._reserve.is_spent:
                    self._end(kind)
        if not self._reasons:
            self._ended()
        elif self._timer is None:
            self._timer = self._tasks.call_later(_PROBE_S, self._probe_soon)

    def _end(self, kind: str) -> None:
        if self._reasons.pop(kind, None) is None:
            return
        if kind == SPACE:
            logger.warning(
                "%s has space again, %d B are free",
                self._folder,
                self._free(),
                extra=event("log_directory_has_space"),
            )
        else:
            logger.warning(
                "the process has file descriptors again", extra=event("descriptors_available")
            )


def _log_failed_allocation(work: asyncio.Future[None]) -> None:
    """Log a failure; the allocation is retried periodically."""
    error = work.exception()
    if error is not None:
        logger.warning(
            "the disk reserve cannot be allocated: %s", error, extra=event("disk_reserve_failed")
        )


class HeldRecords:
    """The partitions whose retention waits for the archive.

    free_bytes: returns the free space of the data folder.
    """

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._holders: set[Partition] = set()

    def note(self, partition: Partition) -> None:
        """Log a change after retention of the partition."""
        held, is_holder = partition.held_bytes, partition in self._holders
        topic, index = partition.topic, partition.index
        if held and not is_holder:
            self._holders.add(partition)
            logger.warning(
                "retention of %s-%d keeps %d B that its table does not have yet; run lakelog table "
                "sync --enabled, or set table.enable=false",
                topic,
                index,
                held,
                extra=event("retention_held", bytes=held, topic=topic, partition=index),
            )
        elif is_holder and not held:
            self._holders.discard(partition)
            logger.info(
                "retention of %s-%d no longer waits for its table",
                topic,
                index,
                extra=event("retention_resumed", topic=topic, partition=index),
            )

    def check_disk(self) -> None:
        """Log an error if the held records take more than the free space."""
        self._holders = {partition for partition in self._holders if not partition.is_retired}
        held = sum(partition.held_bytes for partition in self._holders)
        free = self._free_bytes() if held else 0
        if held > free:
            names = ", ".join(sorted({partition.topic for partition in self._holders})[:8])
            logger.error(
                "records that are not archived yet fill the disk: retention keeps %d B of %s for "
                "their tables, and %d B are free",
                held,
                names,
                free,
                extra=event("archive_lag_critical", bytes=held, free_bytes=free),
            )
