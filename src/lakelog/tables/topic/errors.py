"""Errors of queries and of archive jobs."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown, malformed or contradicts another."""


class TopicMissingError(OptionError):
    """A topic or partition that the query names does not exist."""


class DataLossError(Exception):
    """Records that a query should have read are no longer in the log."""


class RecordsRemovedError(DataLossError):
    """Retention or DeleteRecords removed records before they were read."""


class TopicGoneError(DataLossError):
    """A topic or partition was deleted, or deleted and created again, while a query read it."""


class LogReplacedError(DataLossError):
    """A log was cut below the end of a planned range, and may hold other records there."""


class LogDivergedError(DataLossError):
    """The log lost archived records, and may hold other records at their offsets."""


class ArchiveUnreadableError(Exception):
    """The table of a topic, which a query needs for archived offsets, cannot be read."""


class BadRecordError(Exception):
    """A record that cannot become a row; the text has its partition and offset."""
