"""What a query is told when it cannot go on."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is missing, unknown, malformed or contradicts another."""


class TopicMissingError(OptionError):
    """A topic or partition that the query names does not exist."""


class DataLossError(Exception):
    """Records that a query should have read are no longer in the log."""
