"""Stored settings of a stopped broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lakelog.cli.commands.stored_configs import change_stored, read_stored
from lakelog.cli.failures import CliError
from lakelog.metadata.controller.brokers import plan_register_broker
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import PosixDisk, SystemClock, SystemRandom
from lakelog.storage.folder.ownership import Ownership

BROKER = ResourceType.BROKER


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of broker 3, which has stopped."""
    owner = Ownership(tmp_path, PosixDisk())
    owner.take(SystemRandom(), None, 3)
    owner.release()

    async def register() -> None:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        store = EmbeddedStore(tmp_path / METADATA_FILE, SystemClock())
        log = MetadataLog(store, tasks, SystemRandom(), broker_id=3)
        await log.open(create=True)
        await log.submit(lambda image: plan_register_broker(image, 3, log.incarnation_id))
        await log.close()
        tasks.close()

    asyncio.run(register())
    return tmp_path


def test_a_value_is_stored_until_it_is_removed(folder: Path) -> None:
    assert read_stored(folder) == {}
    change_stored(folder, BROKER, "3", {"log.cleaner.threads": "2"})
    assert read_stored(folder) == {(BROKER, "3"): {"log.cleaner.threads": "2"}}
    change_stored(folder, BROKER, "3", {"log.cleaner.threads": None})
    assert read_stored(folder) == {}


def test_an_invalid_value_changes_nothing(folder: Path) -> None:
    with pytest.raises(CliError, match=r"log\.cleaner\.threads") as error:
        change_stored(folder, BROKER, "3", {"log.cleaner.threads": "many"})
    assert error.value.code == "LL0501"
    assert read_stored(folder) == {}


def test_the_settings_of_a_running_broker_are_not_touched(folder: Path) -> None:
    broker = Ownership(folder, PosixDisk())
    broker.take(SystemRandom(), None, 3)
    try:
        with pytest.raises(CliError, match="in use by another process") as error:
            read_stored(folder)
        assert error.value.code == "LL0701"
        assert "--brokers" in error.value.hint
    finally:
        broker.release()
    read_stored(folder)


def test_another_folder_is_not_taken_over(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=f"no {METADATA_FILE}") as error:
        read_stored(tmp_path)
    assert error.value.code == "LL0703"
    assert list(tmp_path.iterdir()) == []
