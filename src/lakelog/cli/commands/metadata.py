"""`lakelog metadata`: moves the metadata of a stopped cluster between stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.cli.broker_start import BrokerArguments, load_config, metadata_place, secured
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.options import Verbosity
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.metadata.image import MetadataImage
    from lakelog.metadata.store.api import MovableStore
    from lakelog.metadata.store.zookeeper.address import EnsembleAddress

app = Noun("metadata")

_SESSION_TIMEOUT_S = 4.0


@app.command(
    "export",
    file="The file to create.",
    metadata=Argument(
        "The store to read: sqlite:PATH, for a broker alone sqlite:DATA/metadata.db, or "
        "zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT."
    ),
    properties="A broker's server.properties, for a secured ZooKeeper ensemble.",
)
def export_file(
    file: str, *, metadata: str, properties: str | None = None, verbosity: Verbosity
) -> None:
    """Write the metadata of a stopped cluster to a new file.

    Brokers can use the file with --metadata sqlite:FILE, and import reads it.
    """
    target = Path(file).absolute()
    source = _location(metadata, properties)
    image = _copy(source, _parent_checked(target))
    note(f"Exported {_contents(image)} to {target}.")


@app.command(
    "import",
    file="A file of export, or the metadata file of a stopped cluster.",
    metadata="The store to create: sqlite:PATH, or zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT.",
    properties="A broker's server.properties, for a secured ZooKeeper ensemble.",
)
def import_file(
    file: str, *, metadata: str, properties: str | None = None, verbosity: Verbosity
) -> None:
    """Write the metadata of a stopped cluster from a file to an empty store."""
    target = _location(metadata, properties)
    image = _copy(Path(file).absolute(), target)
    note(f"Imported {_contents(image)} to {metadata}.")


def _location(metadata: str, properties: str | None) -> Path | EnsembleAddress:
    location = metadata_place(metadata, "LL0902", "--metadata")
    return secured(location, load_config(BrokerArguments(properties=properties)))


def _parent_checked(path: Path) -> Path:
    if not path.parent.is_dir():
        raise CliError("LL0902", f"{path}: there is no folder {path.parent}")
    return path


def _contents(image: MetadataImage) -> str:
    topics, brokers = len(image.topics_by_id), len(image.brokers)
    return (
        f"the metadata of cluster {image.cluster_id} ({topics} topic{'s' * (topics != 1)}, "
        f"{brokers} broker{'s' * (brokers != 1)}, {image.end} entries)"
    )


def _copy(source: Path | EnsembleAddress, target: Path | EnsembleAddress) -> MetadataImage:
    import asyncio

    from lakelog.metadata.errors import (
        MetadataCorrupt,
        MetadataDenied,
        MetadataError,
        MetadataMissing,
        MetadataNotEmpty,
        MetadataUnavailable,
    )
    from lakelog.metadata.store.chain import MetadataInUse

    try:
        return asyncio.run(_copied(source, target))
    except MetadataInUse as error:
        raise CliError("LL0701", str(error)) from error
    except MetadataNotEmpty as error:
        raise CliError("LL0708", str(error)) from error
    except MetadataMissing as error:
        raise CliError("LL0903", str(error)) from error
    except MetadataUnavailable as error:
        raise CliError("LL0301", str(error), "check the address, and that it runs") from error
    except MetadataDenied as error:
        hint = "use --properties to set the file with the credentials of a broker"
        raise CliError("LL0707", str(error), hint) from error
    except MetadataCorrupt as error:
        raise CliError("LL0707", str(error)) from error
    except MetadataError as error:
        raise CliError("LL0703", str(error)) from error


async def _copied(source: Path | EnsembleAddress, target: Path | EnsembleAddress) -> MetadataImage:
    from lakelog.metadata.store.chain import copy_log

    read, written = _store(source), _store(target)
    await read.open(create=False)
    try:
        return await copy_log(read, written)
    finally:
        await written.close()
        await read.close()


def _store(location: Path | EnsembleAddress) -> MovableStore:
    from lakelog.metadata.store.chain import MemoryMarks
    from lakelog.runtime.posix import SystemClock, SystemRandom
    from lakelog.server.metadata_store import store_at
    from lakelog.server.options import StartError

    try:
        return store_at(location, MemoryMarks(), SystemClock(), SystemRandom(), _SESSION_TIMEOUT_S)
    except StartError as error:
        raise CliError("LL0801", str(error)) from error
