"""What can be wrong with the metadata log itself; decisions about requests raise `KafkaError`."""

from __future__ import annotations


class MetadataError(Exception):
    """The text is for the operator: it names the file or the record."""


class MetadataMissing(MetadataError):  # noqa: N818
    """Logs exist whose metadata does not: the broker must not start."""


class MetadataCorrupt(MetadataError):  # noqa: N818
    """What is stored cannot be what was written: the broker must not start."""


class MetadataUnsupported(MetadataError):  # noqa: N818
    """A newer version wrote it, or it lies where it cannot be kept safely."""


class MetadataUnavailable(MetadataError):  # noqa: N818
    """The call was not carried out, and may be repeated."""


class MetadataFull(MetadataUnavailable):
    """The call was not carried out because the file system has no space for it."""


class MetadataOffline(MetadataError):  # noqa: N818
    """The device failed under the store; only a restart tells what became of the last call."""


class BrokerIdInUse(MetadataError):  # noqa: N818
    """Another live process registered this broker id."""
