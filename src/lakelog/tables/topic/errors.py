"""What a query is told when it cannot go on."""

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
    """A topic or partition was deleted after a query began to read it, or created again."""


class LogReplacedError(DataLossError):
    """A log was cut below the end of a planned range, and may hold other records there by now."""


class LogDivergedError(DataLossError):
    """The log lost records that are archived, and may have others in their place."""


class BadRecordError(Exception):
    """A record that cannot be a row; the text has its place."""
