"""Groups of a query's sources, and the events of a query."""

from __future__ import annotations

import json
import logging
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.committed import Committed
from lakelog.client.errors import ClientError
from lakelog.spark import progress
from lakelog.spark.progress import ProgressPublisher, SourceProgress, group_commits
from lakelog.spark.source.options import Identity

POINT = {"t": {"0": 4, "1": 7}, "t@id@0:2": {}}
END = json.dumps(POINT)
QUERY = uuid.uuid4()


def source(end: str | None = END, **about: str) -> SourceProgress:
    latest = json.dumps(Identity(**{"bootstrap": "h:1", **about}).add_to(POINT))
    return SourceProgress("PythonMicroBatchStream", end, latest)


def official(end: str | None = '{"t":{"0":4}}') -> SourceProgress:
    return SourceProgress("KafkaV2[Subscribe[t]]", end, '{"t":{"0":9}}')


def groups(*sources: SourceProgress) -> list[str]:
    return [each.group for each in group_commits(sources, "q", "spark", "batch 3")]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([source()], ["spark-q"]),
        ([source(prefix="team")], ["team-q"]),
        ([source(group="report", prefix="team")], ["report"]),
        ([official()], ["spark-q"]),
        ([source(), source()], ["spark-q-0", "spark-q-1"]),
        ([source(end=None), official()], ["spark-q-1"]),
        ([source(group="a"), source(group="b")], ["a", "b"]),
        ([source(group="a"), source(group="a")], ["a-0", "a-1"]),
        ([SourceProgress("RateStreamV2", "5", "5"), source()], ["spark-q"]),
        ([SourceProgress("Other", '{"t": {"0": 4}}', None)], []),
    ],
)
def test_each_source_of_a_topic_has_a_group(
    sources: list[SourceProgress], expected: list[str]
) -> None:
    assert groups(*sources) == expected


@pytest.mark.parametrize("end", [None, "", "null", "7", '{"t": 3}'])
def test_a_source_without_offsets_commits_nothing(end: str | None) -> None:
    assert groups(source(end=end)) == []


class Streams:
    """A stand-in for `spark.streams`."""

    def __init__(self) -> None:
        self.active: list[Any] = []
        self.removed: list[Any] = []

    def removeListener(self, listener: object) -> None:  # noqa: N802
        self.removed.append(listener)


class Commits:
    """A stand-in for the group coordinator, which may fail."""

    def __init__(self) -> None:
        self.found: dict[str, dict[tuple[str, int], Committed]] = {}
        self.error: ClientError | None = None

    def __call__(self, cluster: object, group: str, offsets: Any) -> None:
        if self.error is not None:
            raise self.error
        self.found[group] = dict(offsets)


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    found = Commits()
    monkeypatch.setattr(progress, "commit_offsets", found)
    return found


def publisher(bootstrap: str | None = None) -> ProgressPublisher:
    return ProgressPublisher(SimpleNamespace(streams=Streams()), bootstrap, "spark")


def batch(*sources: SourceProgress, run: str = "run") -> Any:
    rows = [
        SimpleNamespace(description=e.description, endOffset=e.end, latestOffset=e.latest)
        for e in sources
    ]
    return SimpleNamespace(
        progress=SimpleNamespace(id=QUERY, runId=run, name=None, batchId=3, sources=rows)
    )


def test_the_end_of_a_batch_is_committed_with_its_leader_epoch(commits: Commits) -> None:
    publisher().onQueryProgress(batch(source()))
    assert commits.found == {
        f"spark-{QUERY}": {
            ("t", 0): Committed(4, "batch 3", 2),
            ("t", 1): Committed(7, "batch 3", -1),
        }
    }


def test_the_official_source_needs_the_brokers(
    commits: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        publisher().onQueryProgress(batch(official()))
    assert commits.found == {}
    assert "pass publish_progress(spark, bootstrap='host:port')" in caplog.text
    publisher("h:1").onQueryProgress(batch(official()))
    assert commits.found == {f"spark-{QUERY}": {("t", 0): Committed(4, "batch 3", -1)}}


def test_a_failure_is_logged_once_in_a_row_and_the_query_continues(
    commits: Commits, caplog: pytest.LogCaptureFixture
) -> None:
    listener = publisher()
    commits.error = ClientError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        for _ in range(3):
            listener.onQueryProgress(batch(source()))
        commits.error = None
        listener.onQueryProgress(batch(source()))
        commits.error = ClientError(ErrorCode.UNKNOWN_MEMBER_ID, "again")
        listener.onQueryProgress(batch(source()))
    assert [message.rpartition(": ")[2] for message in caplog.messages] == [
        "the group has members",
        "again",
    ]


def test_an_idle_query_commits_again_before_its_group_expires(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    listener = publisher()
    idle = SimpleNamespace(runId="run")
    listener.onQueryIdle(idle)
    listener.onQueryProgress(batch(source()))
    commits.found.clear()
    now = 3599.0
    listener.onQueryIdle(idle)
    assert commits.found == {}
    now = 3600.0
    listener.onQueryIdle(idle)
    assert list(commits.found) == [f"spark-{QUERY}"]


def test_stop_waits_for_the_reports_of_ended_queries() -> None:
    listener = publisher()
    listener.onQueryStarted(SimpleNamespace(runId="run"))
    listener.onQueryTerminated(SimpleNamespace(runId="run"))
    listener.stop()
    assert listener._spark.streams.removed == [listener]
