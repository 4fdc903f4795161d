from __future__ import annotations

import pytest

from doubles.disk import MemoryDisk
from doubles.randomness import SeededRandom
from lakelog.base.config.log_config import LogConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.replica.divergence import DivergedLog, check_divergence
from lakelog.replica.partition import Partition
from lakelog.storage.folder.directory import LogDirectory
from storage_kit import DATA, NOW, TOPIC_ID, ManualClock, make_batch, sole_leader


def open_partition(
    disk: MemoryDisk | None = None, rolled: list[Partition] | None = None, **config: object
) -> Partition:
    disk = disk or MemoryDisk(ManualClock())
    directory = LogDirectory(DATA, disk, ManualClock(), SeededRandom(1))
    directory.open(None, 1)
    log = directory.create_log("t", 0, TOPIC_ID, LogConfig(**config))  # type: ignore[arg-type]
    events = rolled if rolled is not None else []
    partition = Partition(log, sole_leader(5), events.append)
    partition.assume(sole_leader(5), 0)
    return partition


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_a_reader_of_another_log_gets_the_offset_of_divergence() -> None:
    """KIP-595: epoch 5 has the offsets to 4, epoch 8 those from there to 6."""
    partition = open_partition()
    partition.append(make_batch(4), NOW)
    partition.assume(sole_leader(8), 0)
    partition.append(make_batch(2), NOW)

    check_divergence(partition, 4, 5)
    check_divergence(partition, 3, 5)
    check_divergence(partition, 6, 8)
    for offset, epoch in ((5, 5), (6, 5), (4, 7), (6, 7)):
        with pytest.raises(DivergedLog) as diverged:
            check_divergence(partition, offset, epoch)
        assert (diverged.value.epoch, diverged.value.end_offset) == (5, 4)
    with pytest.raises(KafkaError) as error:
        check_divergence(partition, 6, 9)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
    partition.delete_records(5)
    with pytest.raises(KafkaError) as error:
        check_divergence(partition, 4, 5)
    assert code_of(error) is ErrorCode.OFFSET_OUT_OF_RANGE
