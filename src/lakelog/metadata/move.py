"""Moves the metadata log of a stopped cluster to another store.

The copy begins with a snapshot of the image at the end of the log, and continues its log id, end,
chain and controller epoch. So cluster id, topic ids, epochs, settings and blocks of producer ids
stay, and the marks in the data folders of the brokers fit (`store/chain.py`).
"""

from __future__ import annotations

from lakelog.metadata.errors import MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import decode_records, encode_records
from lakelog.metadata.store.api import LogRead, MetadataStore, MovableStore


class MetadataInUse(MetadataError):  # noqa: N818
    """A live broker uses the log that was to be moved."""


async def copy_log(source: MovableStore, target: MovableStore) -> MetadataImage:
    """Copy a log into an empty store; return the image at its end.

    source: open. target: not open, and closed by the caller, too.

    Raises `MetadataInUse` if a broker is live before or after the reading, and `MetadataError`.
    """
    await _require_stopped(source)
    image = image_of(await source.read(0))
    state = await source.state()
    await _require_stopped(source)
    if state.end != image.end:
        raise MetadataInUse("the metadata has changed meanwhile: stop the brokers that use it")
    await target.load(state, encode_records(image.to_records()))
    return image


def image_of(read: LogRead) -> MetadataImage:
    """Return the image after all entries of a read from 0."""
    image = MetadataImage()
    if read.snapshot is not None:
        image = image.apply_all(decode_records(read.snapshot.payload), read.snapshot.end)
    for entry in read.entries:
        image = image.apply_all(decode_records(entry.payload), entry.index + 1)
    return image


async def _require_stopped(source: MetadataStore) -> None:
    live = sorted(await source.live_brokers())
    if live:
        names = ", ".join(map(str, live))
        raise MetadataInUse(f"live brokers use the metadata (node ids: {names}); stop them first")
