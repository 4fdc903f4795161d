"""Reads and changes the stored settings of a stopped broker in its data folder.

A stored value that prevents the broker from starting, or all clients from connecting, cannot be
changed through the broker. The folder's lock is held meanwhile, so that no broker starts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from lakelog.base.errors import KafkaError
from lakelog.cli.failures import CliError
from lakelog.metadata.controller.configs import plan_stored_configs
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import ResourceType
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import PosixDisk, SystemClock, SystemRandom
from lakelog.storage.errors import DirectoryInUse, StorageError
from lakelog.storage.folder.identity import META_PROPERTIES, decode_meta_properties
from lakelog.storage.folder.ownership import Ownership

T = TypeVar("T")

Stored = dict[tuple[ResourceType, str], dict[str, str]]
"""Values by resource type and name, then by key."""


def read_stored(folder: Path) -> Stored:
    """Return all stored settings.

    Raises `CliError` if the folder is in use or is not a data folder.
    """

    async def read(metadata: MetadataLog) -> Stored:
        return _stored(metadata.image)

    return _with_metadata(folder, read)


def change_stored(
    folder: Path,
    resource_type: ResourceType,
    resource_name: str,
    values: Mapping[str, str | None],
) -> None:
    """Set values; a value of `None` removes the key.

    Raises `CliError` if the folder is in use or is not a data folder, and for an invalid value.
    """

    async def change(metadata: MetadataLog) -> None:
        await metadata.submit(
            lambda image: plan_stored_configs(image, resource_type, resource_name, values)
        )

    _with_metadata(folder, change)


def _stored(image: MetadataImage) -> Stored:
    return {
        (ResourceType(kind), name): dict(values)
        for (kind, name), values in sorted(image.config_map.items())
        if values
    }


def _with_metadata(folder: Path, use: Callable[[MetadataLog], Awaitable[T]]) -> T:
    if not (folder / METADATA_FILE).exists():
        raise CliError("LL0703", f"{folder} is not a broker's data folder: no {METADATA_FILE}")
    try:
        node_id = decode_meta_properties((folder / META_PROPERTIES).read_bytes()).node_id
        with _held(folder, node_id):
            return asyncio.run(_open(folder, node_id, use))
    except DirectoryInUse as error:
        raise CliError(
            "LL0701",
            str(error),
            "stop that broker, or use --brokers to change settings while it runs",
        ) from error
    except KafkaError as error:
        raise CliError("LL0501", error.message) from error
    except (ValueError, StorageError, MetadataError) as error:
        raise CliError("LL0703", str(error)) from error


@contextmanager
def _held(folder: Path, node_id: int) -> Iterator[None]:
    owner = Ownership(folder, PosixDisk(lambda _: None))
    owner.take(SystemRandom(), None, node_id)
    try:
        yield
    finally:
        owner.release()


async def _open(folder: Path, node_id: int, use: Callable[[MetadataLog], Awaitable[T]]) -> T:
    tasks = AsyncioTasks(asyncio.get_running_loop())
    store = EmbeddedStore(folder / METADATA_FILE, SystemClock())
    metadata = MetadataLog(store, tasks, SystemRandom(), broker_id=node_id)
    try:
        await metadata.open(create=False)
        try:
            return await use(metadata)
        finally:
            await metadata.close()
    finally:
        tasks.close()
