"""Progress of streaming queries as consumer groups, so that tools for groups show their lag.

The source of a query knows neither its name nor its checkpoint. Spark passes both to listeners in
the session, with the end offsets of each batch. A listener therefore commits the offsets.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from lakelog.base.errors import KafkaError
from lakelog.base.events import event
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, commit_offsets
from lakelog.spark.source.options import Identity
from lakelog.tables.topic.offsets import StreamOffset, items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("lakelog.spark")

_COMMIT_TIMEOUT_S = 5.0
_REFRESH_S = 3600.0
"""Commits of an idle query are repeated, because brokers expire groups without commits."""
_OFFICIAL = ("KafkaV2[", "KafkaSource[")
"""Beginnings of the official connector's descriptions."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source of a query in one progress event; texts are JSON as Spark reports it."""

    description: str
    end: str | None
    latest: str | None


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The offsets of one source, and the group that shows them."""

    bootstrap: str
    group: str
    point: StreamOffset
    note: str


class ProgressPublisher(StreamingQueryListener):  # type: ignore[misc]
    """A listener that commits the end of each batch; `publish_progress` starts one."""

    def __init__(self, spark: SparkSession, bootstrap: str | None, prefix: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._clusters: dict[str, Cluster] = {}
        self._last: dict[str, tuple[float, list[GroupCommit]]] = {}
        self._failed: set[str] = set()
        self._running: set[str] = set()
        self._ended = threading.Condition()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Commit the progress of queries that have ended, and stop listening.

        Spark reports progress with a delay, so the call waits for the reports, at most `timeout_s`
        seconds.
        """
        with self._ended:
            self._ended.wait_for(lambda: self._running <= self._active(), timeout_s)
        self._spark.streams.removeListener(self)
        for cluster in self._clusters.values():
            cluster.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        with self._ended:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        name = progress.name or str(progress.id)
        sources = [
            SourceProgress(source.description, source.endOffset, source.latestOffset)
            for source in progress.sources
        ]
        commits = list(
            self._addressed(group_commits(sources, name, self._prefix, f"batch {progress.batchId}"))
        )
        self._last[str(progress.runId)] = time.monotonic(), commits
        for commit in commits:
            self._commit(commit)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        at, commits = self._last.get(str(event.runId), (0.0, []))
        if commits and time.monotonic() - at >= _REFRESH_S:
            self._last[str(event.runId)] = time.monotonic(), commits
            for commit in commits:
                self._commit(commit)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self._last.pop(str(event.runId), None)
        with self._ended:
            self._running.discard(str(event.runId))
            self._ended.notify_all()

    def _active(self) -> set[str]:
        return {str(query.runId) for query in self._spark.streams.active}

    def _addressed(self, commits: list[GroupCommit]) -> Iterator[GroupCommit]:
        """Yield the commits whose brokers are known."""
        for commit in commits:
            bootstrap = self._bootstrap or commit.bootstrap
            if bootstrap:
                yield replace(commit, bootstrap=bootstrap)
            else:
                self._fail(
                    commit.group,
                    "format('kafka') does not report its brokers: pass "
                    "publish_progress(spark, bootstrap='host:port')",
                )

    def _commit(self, commit: GroupCommit) -> None:
        """Commit, or log the first failure in a row: a query does not depend on its group."""
        offsets = {
            key: Committed(at, commit.note, epoch if epoch is not None else -1)
            for key, at in items(commit.point.offsets)
            for epoch in [commit.point.epoch_of(key)]
        }
        try:
            commit_offsets(self._cluster(commit.bootstrap), commit.group, offsets)
        except KafkaError as error:
            self._fail(commit.group, error.message)
        else:
            self._failed.discard(commit.group)

    def _cluster(self, bootstrap: str) -> Cluster:
        if bootstrap not in self._clusters:
            self._clusters[bootstrap] = Cluster(
                bootstrap,
                client_id="lakelog-spark-progress",
                timeout_s=_COMMIT_TIMEOUT_S,
                request_timeout_s=_COMMIT_TIMEOUT_S,
            )
        return self._clusters[bootstrap]

    def _fail(self, group: str, reason: str) -> None:
        if group not in self._failed:
            self._failed.add(group)
            _log.warning(
                "progress of group '%s' is not committed: %s",
                group,
                reason,
                extra=event("progress_not_committed", group=group),
            )


def publish_progress(
    spark: SparkSession, *, bootstrap: str | None = None, prefix: str = "spark"
) -> ProgressPublisher:
    """Commit the progress of this session's streaming queries as consumer groups from now on.

    The group of a query is its option `kafka.group.id`, or `<groupIdPrefix>-<name of the query>`;
    a query without a name has its id there. If several sources of a query had the same group, the
    position of the source is appended. Queries of `format("kafka")` have groups, too.

    Args:
        spark: a classic session or one of Spark Connect.
        bootstrap: brokers as seen from this process. By default the query's own, which
            `format("kafka")` does not report.
        prefix: the prefix of queries without the option `groupIdPrefix`.

    Returns the listener; its `stop` ends this. Failures are logged, and do not stop a query.
    """
    publisher = ProgressPublisher(spark, bootstrap, prefix)
    spark.streams.addListener(publisher)
    return publisher


def group_commits(
    sources: Sequence[SourceProgress], name: str, prefix: str, note: str
) -> list[GroupCommit]:
    """Return the commits for one progress event of a query. Other kinds of sources have none."""
    identities = {index: _identity(source) for index, source in enumerate(sources)}
    groups = {
        index: identity.group or f"{identity.prefix or prefix}-{name}"
        for index, identity in identities.items()
        if identity is not None
    }
    commits = []
    for index, group in groups.items():
        identity, end = identities[index], sources[index].end
        assert identity is not None
        is_shared = list(groups.values()).count(group) > 1
        with suppress(ValueError):
            point = StreamOffset.from_json(_object(end))
            commits.append(
                GroupCommit(
                    identity.bootstrap, f"{group}-{index}" if is_shared else group, point, note
                )
            )
    return commits


def _identity(source: SourceProgress) -> Identity | None:
    identity = Identity.of(source.latest)
    return Identity() if identity is None and source.description.startswith(_OFFICIAL) else identity


def _object(text: str | None) -> Mapping[str, Any]:
    """Return a JSON object. Raises `ValueError`, as for a source that has not read yet."""
    value = json.loads(text or "")
    if not isinstance(value, dict):
        raise ValueError(f"not an object: {text!r}")
    return value
