"""A full refresh: a higher `sinkGeneration` retires the lower generations of a sink.

Each generation has a control record of its own. The record of a lower generation is removed, which
aborts its open transactions, and is claimed in the name of the higher generation. From then on the
coordinator refuses the query of the lower generation, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from lakelog.client.sink import AnotherQueryError, NotASinkError, Sink

_CLAIM = "generation "
_LOWER_MAX = 100
"""The number of generations that a query retires at most, to bound the requests."""


def retire_lower(open_sink: Callable[[int], Sink], generation: int) -> None:
    """Retire the control records of lower generations; safe to repeat and to run concurrently.

    open_sink: returns the sink of a generation. Raises `ClientError`.
    """
    for lower in range(max(0, generation - _LOWER_MAX), generation):
        with open_sink(lower) as sink:
            while not _is_retired(sink):
                _claim(sink, generation)


def retired_by(query_id: str) -> str | None:
    """Return the generation that has claimed a control record, `None` for the record of a query."""
    return query_id.removeprefix(_CLAIM) if query_id.startswith(_CLAIM) else None


def _is_retired(sink: Sink) -> bool:
    """Return whether the record is claimed, or never existed."""
    status = sink.read()
    return status is None or retired_by(status.query_id) is not None


def _claim(sink: Sink, generation: int) -> None:
    name = f"{_CLAIM}{generation}"
    try:
        sink.remove()
        sink.begin(name, name, 0)
    except (AnotherQueryError, NotASinkError):
        # The lower query, or another task, came between the two requests: the caller looks again.
        return
