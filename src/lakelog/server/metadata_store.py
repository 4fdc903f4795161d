"""The metadata store of a broker: its own file, a file of this host, or a ZooKeeper ensemble."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from lakelog.metadata.store.api import MetadataStore, MovableStore
from lakelog.metadata.store.chain import MARK_FILE, MarkFile, Marks
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.metadata.store.zookeeper.address import EnsembleAddress
from lakelog.runtime.api import Clock, Random
from lakelog.server.options import ServeOptions, StartError


def metadata_store(options: ServeOptions, clock: Clock, random: Random) -> MetadataStore:
    """Return the store that the options name. Raises `StartError` if its library is missing."""
    marks = MarkFile(options.data / MARK_FILE)
    timeout_s = options.config.get_int("broker.session.timeout.ms") / 1000
    if options.metadata is None:
        return EmbeddedStore(options.data / METADATA_FILE, clock, marks=marks)
    return store_at(options.metadata, marks, clock, random, timeout_s)


def store_at(
    place: Path | EnsembleAddress, marks: Marks, clock: Clock, random: Random, timeout_s: float
) -> MovableStore:
    """Return the store that brokers share. Raises `StartError` if its library is missing."""
    if isinstance(place, Path):
        return EmbeddedStore(place, clock, shared=True, session_timeout_s=timeout_s, marks=marks)
    return _zookeeper(place, marks, clock, random, timeout_s)


def _zookeeper(
    ensemble: EnsembleAddress, marks: Marks, clock: Clock, random: Random, timeout_s: float
) -> MovableStore:
    if find_spec("kazoo") is None:
        raise StartError("kazoo is not installed; run: pip install '.[zookeeper]'")
    # Imported here: kazoo would delay the start of every other broker.
    from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
    from lakelog.metadata.store.zookeeper.store import ZooKeeperStore

    try:
        session = KazooSession(ensemble.servers, timeout_s, ensemble.security)
    except ValueError as error:
        raise StartError(str(error)) from error
    return ZooKeeperStore(
        session,
        ensemble.root,
        marks,
        clock,
        random,
        session_timeout_s=timeout_s,
    )
