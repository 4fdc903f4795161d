"""Clients of a query's cluster: one for planning, and one for the tasks of a worker.

A worker reads one task after another, so it keeps the connections of the last task. They save a
micro-batch three connections, which take longer than its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakelog.spark.python_processes import is_worker
from lakelog.spark.source.options import SourceOptions
from lakelog.tables.hybrid.client import HybridClient
from lakelog.tables.topic.client import TopicClient

_kept: dict[tuple[object, ...], TopicClient] = {}
"""The client of the last task, by its settings."""


def open_planner(options: SourceOptions) -> TopicClient:
    """Return a client for planning: with tables, a topic begins where its table begins.

    Raises `AddressError` for a malformed address.
    """
    kind = HybridClient if options.reads_tables else TopicClient
    return kind(
        options.bootstrap, timeout_s=options.client.planning_timeout_s, **_settings(options)
    )


@contextmanager
def reading_client(options: SourceOptions) -> Iterator[TopicClient]:
    """Return a client for records.

    A worker keeps it for the next task, unless this one ends with an error or before its end.
    Raises `AddressError`.
    """
    # The query is running: its broker may be restarting, but its address is not wrong.
    settings = {
        "timeout_s": options.client.reading_timeout_s,
        "awaits_cluster": True,
        **_settings(options),
    }
    key = options.bootstrap, *settings.values()
    # A client that is in use is not among those kept: a task may need two.
    client = _kept.pop(key, None) or TopicClient(options.bootstrap, **settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    _keep(key, client)


def _keep(key: tuple[object, ...], client: TopicClient) -> None:
    while _kept:
        _kept.popitem()[1].close()
    if is_worker():
        _kept[key] = client
    else:
        client.close()


def _settings(options: SourceOptions) -> dict[str, Any]:
    given = options.client
    return {
        "client_id": given.client_id,
        "read_committed": options.read_committed,
        "request_timeout_s": given.request_timeout_s,
        "fetch_bytes": given.fetch_bytes,
        "fetch_wait_ms": given.fetch_wait_ms,
    }
