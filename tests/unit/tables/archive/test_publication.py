from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakelog.client.admin.api import Admin
from lakelog.client.errors import UnreachableError
from lakelog.tables.archive import publication as module
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.publication import Publication
from lakelog.tables.iceberg.warehouse import warehouse_at


class OtherTopics:
    """A stand-in for `TopicClient`, with the keys of other topics."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[str, str | None]] = {}

    def __enter__(self) -> OtherTopics:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def topics(self) -> list[str]:
        return ["orders", *self.keys]

    def configs(self, names: Iterable[str], keys: object) -> dict[str, dict[str, str | None]]:
        return {name: self.keys.get(name, {}) for name in names}


class Cluster:
    """A stand-in for `Admin`, with the configuration of one topic and committed offsets."""

    def __init__(self, **values: str) -> None:
        self.values = {f"table.{key.replace('_', '.')}": value for key, value in values.items()}
        self.committed: list[tuple[str, dict[tuple[str, int], int]]] = []
        self.others = OtherTopics()
        self.is_away = False
        self.configs = SimpleNamespace(describe=self._describe, alter=self._alter)
        self.groups = SimpleNamespace(commit=self._commit)

    def __enter__(self) -> Cluster:
        if self.is_away:
            raise UnreachableError("no broker")
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def _describe(self, kind: object, name: str, *, keys: object) -> dict[str, Any]:
        return {key: SimpleNamespace(value=value) for key, value in self.values.items()}

    def _alter(self, kind: object, name: str, values: dict[str, str]) -> None:
        self.values |= values

    def _commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        self.committed.append((group, offsets))


def publication(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, folder: Path, notes: list[str]
) -> Publication:
    monkeypatch.setattr(Publication, "_admin", lambda _: cast("Admin", cluster))
    monkeypatch.setattr(module, "TopicClient", lambda *_, **__: cluster.others)
    place = warehouse_at(str(folder))
    made = Publication("b:1", "orders", "orders", place, notes.append)
    made.claim()
    return made


def test_an_enabled_topic_gets_the_place_and_the_end_of_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(enable="true")
    made = publication(cluster, monkeypatch, tmp_path, [])
    for _ in range(2):
        made.publish({0: 5, 1: 0})
    assert cluster.values["table.warehouse"] == str(tmp_path)
    assert cluster.values["table.archived.offsets"] == "0:5,1:0"
    assert cluster.committed == [("lakelog-table-orders", {("orders", 0): 5, ("orders", 1): 0})]


def test_another_table_than_the_topics_publishes_no_floor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notes: list[str] = []
    cluster = Cluster(enable="true", warehouse="/elsewhere")
    publication(cluster, monkeypatch, tmp_path, notes).publish({0: 5})
    assert "table.archived.offsets" not in cluster.values
    assert cluster.values["table.warehouse"] == "/elsewhere"
    assert "retention and queries use that one" in notes[0]


def test_a_disabled_topic_gets_the_place_of_its_table_and_a_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(enable="false")
    made = publication(cluster, monkeypatch, tmp_path, [])
    made.publish({0: 5})
    place = {"table.name": "", "table.warehouse": str(tmp_path), "table.catalog": ""}
    assert cluster.values == {"table.enable": "false"} | place
    assert len(cluster.committed) == 1


def test_the_keys_of_a_dropped_table_do_not_return(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(enable="false")
    made = publication(cluster, monkeypatch, tmp_path, [])
    cluster.values = {"table.enable": "false"}
    made.publish({0: 5})
    made._next_check = 0.0
    made.follow({0: 5})
    assert cluster.values == {"table.enable": "false"}


def test_a_broker_without_keys_of_tables_gets_a_group_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster()
    publication(cluster, monkeypatch, tmp_path, []).publish({0: 5})
    assert cluster.values == {}
    assert len(cluster.committed) == 1


def test_a_second_table_of_a_disabled_topic_leaves_the_first_one_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notes: list[str] = []
    cluster = Cluster(enable="false", warehouse="/elsewhere")
    publication(cluster, monkeypatch, tmp_path, notes).publish({0: 5})
    assert cluster.values["table.warehouse"] == "/elsewhere"
    assert "the commands of lakelog table use that one" in notes[0]


def test_a_failure_is_logged_and_published_with_the_next_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    cluster = Cluster(enable="true")
    made = publication(cluster, monkeypatch, tmp_path, [])
    cluster.is_away = True
    made.publish({0: 5})
    assert "is not published, so retention waits" in caplog.text
    cluster.is_away = False
    made.publish({0: 5})
    assert cluster.values["table.archived.offsets"] == "0:5"


def test_the_keys_of_a_running_job_may_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notes: list[str] = []
    cluster = Cluster(enable="false")
    made = publication(cluster, monkeypatch, tmp_path, notes)
    made.publish({0: 5})
    cluster.values["table.enable"] = "true"
    made.publish({0: 6})
    assert cluster.values["table.archived.offsets"] == "0:6"
    cluster.values["table.warehouse"] = "/elsewhere"
    for end in (7, 8):
        made.publish({0: end})
    assert cluster.values["table.archived.offsets"] == "0:6"
    assert len(notes) == 1


def test_a_topic_that_is_enabled_while_it_is_idle_gets_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster(enable="false")
    made = publication(cluster, monkeypatch, tmp_path, [])
    made.publish({0: 5})
    cluster.values["table.enable"] = "true"
    made.follow({0: 5})
    assert "table.archived.offsets" not in cluster.values, "the keys were checked a moment ago"
    monkeypatch.setattr(module, "_CHECK_S", 0.0)
    made._next_check = 0.0
    cluster.is_away = True
    made.follow({0: 5})
    cluster.is_away = False
    made.follow({0: 5})
    assert cluster.values["table.archived.offsets"] == "0:5"
    assert cluster.values["table.warehouse"] == str(tmp_path)


@pytest.mark.parametrize(("name", "is_taken"), [("orders", True), ("payments", False)])
def test_the_table_of_another_topic_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, is_taken: bool
) -> None:
    cluster = Cluster(enable="true")
    cluster.others.keys["invoices"] = {
        "table.enable": "true",
        "table.name": name,
        "table.warehouse": str(tmp_path),
    }
    if is_taken:
        with pytest.raises(
            SyncError, match=r"is the table of topic 'invoices': set .* table\.name"
        ):
            publication(cluster, monkeypatch, tmp_path, [])
    else:
        publication(cluster, monkeypatch, tmp_path, [])
    assert ("table.warehouse" in cluster.values) is not is_taken
