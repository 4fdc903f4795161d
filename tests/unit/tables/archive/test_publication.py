from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.types import LongType

from lakelog.client.admin.api import Admin
from lakelog.client.errors import UnreachableError
from lakelog.tables.archive import publication as module
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import find_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.publication import Publication, open_job
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.warehouse import Warehouse, open_warehouse, warehouse_at
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.topic.errors import OptionError
from schema_registry import schema_registry
from unit.tables.archive_log import Log
from unit.tables.archive_table import write_batch
from unit.tables.dead_letters import with_dead_letters


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
    warehouse = warehouse_at(str(folder))
    made = Publication("b:1", "orders", "orders", warehouse, notes.append)
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
    table_keys = {"table.name": "", "table.warehouse": str(tmp_path), "table.catalog": ""}
    assert cluster.values == {"table.enable": "false"} | table_keys
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


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The topic of every job, which has the id `id`."""
    log = Log({0: 5})

    @contextmanager
    def client(*_: object, **__: object) -> Iterator[Log]:
        yield log

    monkeypatch.setattr(module, "TopicClient", client)
    return log


def opened(
    warehouse: Warehouse, *, null_timestamps: bool = False, errors: OnBadRecord | None = None
) -> ArchiveJob:
    return open_job(
        "b:1",
        "orders",
        warehouse,
        "orders",
        batch_bytes=1000,
        file_bytes=500,
        skip_lost=False,
        null_timestamps=null_timestamps,
        errors=errors,
    )


def test_a_job_has_the_identity_of_topic_and_table(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path))
    job = opened(warehouse)

    assert (job.topic_id, job.identifier) == ("id", ("lakelog", "orders"))
    assert job.location.startswith(warehouse.location)
    assert job.uuid == str(job.address.load().metadata.table_uuid)
    assert opened(warehouse) == job


def test_the_key_of_the_topic_decides_about_typed_columns(tmp_path: Path, log: Log) -> None:
    warehouse = open_warehouse(str(tmp_path))
    assert not opened(warehouse).is_json
    log.keys = {"table.value.format": "json"}
    job = opened(warehouse)
    assert job.is_json
    with job.address.load().update_schema() as update:
        update.add_column("data", LongType())
    with pytest.raises(ValueError, match="has a column 'data' of type int64"):
        opened(warehouse)


def test_the_key_of_the_topic_names_the_schema_registry(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = open_warehouse(str(tmp_path))
    log.keys = {"table.schema.registry.url": "http://registry:8081"}
    assert opened(warehouse).registry is None, "unless the format is registry"
    log.keys["table.value.format"] = "registry"
    monkeypatch.setenv("LAKELOG_SCHEMA_REGISTRY_USER_INFO", "me:secret")
    job = opened(warehouse)
    assert job.registry == RegistryAddress("http://registry:8081", "me:secret")
    assert ArchiveJob.from_json(job.to_json()) == job
    assert "secret" not in repr(job)

    log.keys["table.schema.registry.url"] = "registry"
    with pytest.raises(ValueError, match="'registry' is not the URL of a schema registry"):
        opened(warehouse)
    del log.keys["table.schema.registry.url"]
    with pytest.raises(OptionError, match=r"table\.schema\.registry\.url is not set: run lakelog"):
        opened(warehouse)


def test_a_job_decodes_values_without_ids_with_the_newest_version_at_its_start(
    tmp_path: Path, log: Log
) -> None:
    warehouse = open_warehouse(str(tmp_path))
    with schema_registry() as registry:
        log.keys = {"table.value.format": "registry-latest"}
        log.keys["table.schema.registry.url"] = registry.url
        with pytest.raises(SyncError, match="version latest of the subject 'orders-value': Subj"):
            opened(warehouse)
        registry.register("orders-value", '"int"')
        assert opened(warehouse).schema_without_ids == ("orders-value", 1)
        registry.register("orders-value", "message X {}", "PROTOBUF")
        with pytest.raises(SyncError, match="PROTOBUF, which is not supported"):
            opened(warehouse)
        log.keys["table.value.format"] = "registry"
        assert opened(warehouse).schema_without_ids is None


def test_null_timestamps_add_a_column_once(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path))
    number = opened(warehouse, null_timestamps=True).raw_timestamp_id

    column = opened(warehouse).address.load().schema().find_field(number)
    assert (column.name, column.required) == ("rawTimestamp", False)
    assert opened(warehouse, null_timestamps=True).raw_timestamp_id == number


def test_a_table_of_another_topic_of_this_name_is_rejected(tmp_path: Path, log: Log) -> None:
    warehouse = open_warehouse(str(tmp_path))
    commit_batch(
        opened(warehouse).address, write_batch(opened(warehouse).address, 0, 5, topic_id="id")
    )
    assert opened(warehouse).topic_id == "id"

    log.topic_id = "new-id"
    with pytest.raises(SyncError, match=r"topic id id; 'orders' is new-id now.*another name"):
        opened(warehouse)


def test_a_table_in_another_warehouse_is_rejected(tmp_path: Path) -> None:
    warehouse = open_warehouse(str(tmp_path))
    opened(warehouse)

    with pytest.raises(ValueError, match="not in file:///elsewhere: archive into a table of"):
        opened(replace(warehouse, location="file:///elsewhere"))


def test_dead_letters_have_a_table_beside_the_topics(tmp_path: Path, log: Log) -> None:
    warehouse = open_warehouse(str(tmp_path))
    job = opened(warehouse)
    assert (job.errors, job.dead_letters_location, find_dead_letters(job.address)) == (
        "stop",
        "",
        None,
    )
    log.keys["table.errors"] = "dead-letter"
    job = opened(warehouse)
    dead_letters = find_dead_letters(job.address)
    assert dead_letters is not None
    assert job.dead_letters_location == dead_letters.location()
    assert job.dead_letters_uuid == str(dead_letters.metadata.table_uuid)
    assert opened(warehouse, errors=OnBadRecord.SKIP).errors == "skip", "the option comes first"

    log.keys["table.errors"] = "ignore"
    with pytest.raises(OptionError, match=r"table\.errors is 'ignore'"):
        opened(warehouse)


def test_dead_letters_of_another_topic_are_rejected(tmp_path: Path, log: Log) -> None:
    warehouse = open_warehouse(str(tmp_path))
    address = opened(warehouse).address
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), topic_id="id"))
    open_catalog(address.catalog).drop_table(address.identifier)
    log.topic_id = "another"
    with pytest.raises(SyncError, match="orders_dead_letters has dead letters of another topic"):
        opened(warehouse, errors=OnBadRecord.DEAD_LETTER)
