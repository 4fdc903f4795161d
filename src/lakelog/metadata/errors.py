"""Failures of the metadata log itself; decisions about requests raise `KafkaError`."""

from __future__ import annotations


class MetadataError(Exception):
    """Base class. The text is for the operator and names the file or the record."""


class MetadataMissing(MetadataError):  # noqa: N818
    """There are logs but no metadata of them: the broker must not start."""


class MetadataCorrupt(MetadataError):  # noqa: N818
    """The stored data differs from the written data: the broker must not start."""


class MetadataUnsupported(MetadataError):  # noqa: N818
    """A newer version of lakelog wrote the data, or its file system is unsafe for it."""


class MetadataUnavailable(MetadataError):  # noqa: N818
    """The call was not carried out, and may be repeated."""


class MetadataFull(MetadataUnavailable):
    """The call was not carried out because the file system has no space for it."""


class MetadataOffline(MetadataError):  # noqa: N818
    """The device failed; the outcome of the last call is unknown until a restart."""


class BrokerIdInUse(MetadataError):  # noqa: N818
    """Another live process registered this broker id."""


class MetadataDenied(MetadataError):  # noqa: N818
    """The store does not accept this broker's credentials: it must not start."""


class RegistrationLost(MetadataError):  # noqa: N818
    """The broker was unregistered or replaced while it ran: it must stop."""


class MetadataNotEmpty(MetadataError):  # noqa: N818
    """A log is in the place where another one was to be written."""


def is_lasting(error: Exception) -> bool:
    """Return whether no later call of the same process can succeed: the broker has to stop."""
    return isinstance(error, MetadataError) and not isinstance(error, MetadataUnavailable)
