"""Errors of the sink. Each text names the option that resolves it."""

from __future__ import annotations


class SinkError(Exception):
    """A batch was not written; with `delivery=exactly-once` no record of it is visible."""


class OtherQueryError(SinkError):
    """Another query, or the same query with a new checkpoint, wrote to this sink id."""


class OldGenerationError(SinkError):
    """A full refresh with a higher `sinkGeneration` replaced this query."""


class BatchOrderError(SinkError):
    """The checkpoint and the sink disagree by more than the one batch that a crash explains."""


class FencedError(SinkError):
    """Another run of the query has taken over the sink, or the batch took too long."""


class LostRecordsError(SinkError):
    """A broker lost records of the batch after it had acknowledged them."""


class RowError(SinkError):
    """A row cannot become a record."""


class RetriedTaskError(SinkError):
    """Spark ran a task twice in a batch that only allows one writer for each partition."""


class UnsupportedDeliveryError(SinkError):
    """The broker lacks the feature that `delivery=exactly-once` needs."""


class UnknownOutcomeError(SinkError):
    """The broker did not answer whether the batch is committed; the next run of it finds out."""
