from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.types import LongType

from lakelog.tables.archive import opening
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import find_dead_letters
from lakelog.tables.archive.failures import SyncError
from lakelog.tables.archive.opening import open_job
from lakelog.tables.archive.progress import ArchiveJob
from lakelog.tables.archive.refusals import OnBadRecord
from lakelog.tables.iceberg.catalog import open_catalog
from lakelog.tables.iceberg.warehouse import Warehouse, open_warehouse
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.topic.errors import OptionError
from schema_registry import schema_registry
from unit.tables.archive_log import Log
from unit.tables.archive_table import write_batch
from unit.tables.dead_letters import with_dead_letters


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The topic of every job, which has the id `id`."""
    log = Log({0: 5})

    @contextmanager
    def client(*_: object, **__: object) -> Iterator[Log]:
        yield log

    monkeypatch.setattr(opening, "TopicClient", client)
    return log


def opened(
    place: Warehouse, *, null_timestamps: bool = False, errors: OnBadRecord | None = None
) -> ArchiveJob:
    return open_job(
        "b:1",
        "orders",
        place,
        "orders",
        batch_bytes=1000,
        file_bytes=500,
        skip_lost=False,
        null_timestamps=null_timestamps,
        errors=errors,
    )


def test_a_job_has_the_identity_of_topic_and_table(tmp_path: Path) -> None:
    place = open_warehouse(str(tmp_path))
    job = opened(place)

    assert (job.topic_id, job.identifier) == ("id", ("lakelog", "orders"))
    assert job.location.startswith(place.location)
    assert job.uuid == str(job.address.load().metadata.table_uuid)
    assert opened(place) == job


def test_the_key_of_the_topic_decides_about_typed_columns(tmp_path: Path, log: Log) -> None:
    place = open_warehouse(str(tmp_path))
    assert not opened(place).is_json
    log.keys = {"table.value.format": "json"}
    job = opened(place)
    assert job.is_json
    with job.address.load().update_schema() as update:
        update.add_column("data", LongType())
    with pytest.raises(ValueError, match="has a column 'data' of type int64"):
        opened(place)


def test_the_key_of_the_topic_names_the_schema_registry(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = open_warehouse(str(tmp_path))
    log.keys = {"table.schema.registry.url": "http://registry:8081"}
    assert opened(place).registry is None, "unless the format is registry"
    log.keys["table.value.format"] = "registry"
    monkeypatch.setenv("LAKELOG_SCHEMA_REGISTRY_USER_INFO", "me:secret")
    job = opened(place)
    assert job.registry == RegistryAddress("http://registry:8081", "me:secret")
    assert ArchiveJob.from_json(job.to_json()) == job
    assert "secret" not in repr(job)

    log.keys["table.schema.registry.url"] = "registry"
    with pytest.raises(ValueError, match="'registry' is not the URL of a schema registry"):
        opened(place)
    del log.keys["table.schema.registry.url"]
    with pytest.raises(OptionError, match=r"table\.schema\.registry\.url is not set: run lakelog"):
        opened(place)


def test_a_job_decodes_values_without_ids_with_the_newest_version_at_its_start(
    tmp_path: Path, log: Log
) -> None:
    place = open_warehouse(str(tmp_path))
    with schema_registry() as registry:
        log.keys = {"table.value.format": "registry-latest"}
        log.keys["table.schema.registry.url"] = registry.url
        with pytest.raises(SyncError, match="version latest of the subject 'orders-value': Subj"):
            opened(place)
        registry.register("orders-value", '"int"')
        assert opened(place).schema_without_ids == ("orders-value", 1)
        registry.register("orders-value", "message X {}", "PROTOBUF")
        with pytest.raises(SyncError, match="PROTOBUF, which is not supported"):
            opened(place)
        log.keys["table.value.format"] = "registry"
        assert opened(place).schema_without_ids is None


def test_null_timestamps_add_a_column_once(tmp_path: Path) -> None:
    place = open_warehouse(str(tmp_path))
    number = opened(place, null_timestamps=True).raw_timestamp_id

    column = opened(place).address.load().schema().find_field(number)
    assert (column.name, column.required) == ("rawTimestamp", False)
    assert opened(place, null_timestamps=True).raw_timestamp_id == number


def test_a_table_of_another_topic_of_this_name_is_rejected(tmp_path: Path, log: Log) -> None:
    place = open_warehouse(str(tmp_path))
    commit_batch(opened(place).address, write_batch(opened(place).address, 0, 5, topic_id="id"))
    assert opened(place).topic_id == "id"

    log.topic_id = "new-id"
    with pytest.raises(SyncError, match=r"topic id id; 'orders' is new-id now.*another name"):
        opened(place)


def test_a_table_in_another_warehouse_is_rejected(tmp_path: Path) -> None:
    place = open_warehouse(str(tmp_path))
    opened(place)

    with pytest.raises(ValueError, match="not in file:///elsewhere: archive into a table of"):
        opened(replace(place, location="file:///elsewhere"))


def test_dead_letters_have_a_table_beside_the_topics(tmp_path: Path, log: Log) -> None:
    place = open_warehouse(str(tmp_path))
    job = opened(place)
    assert (job.errors, job.dead_letters_location, find_dead_letters(job.address)) == (
        "stop",
        "",
        None,
    )
    log.keys["table.errors"] = "dead-letter"
    job = opened(place)
    dead_letters = find_dead_letters(job.address)
    assert dead_letters is not None
    assert job.dead_letters_location == dead_letters.location()
    assert job.dead_letters_uuid == str(dead_letters.metadata.table_uuid)
    assert opened(place, errors=OnBadRecord.SKIP).errors == "skip", "the option comes first"

    log.keys["table.errors"] = "ignore"
    with pytest.raises(OptionError, match=r"table\.errors is 'ignore'"):
        opened(place)


def test_dead_letters_of_another_topic_are_rejected(tmp_path: Path, log: Log) -> None:
    place = open_warehouse(str(tmp_path))
    address = opened(place).address
    commit_batch(address, with_dead_letters(address, 0, 5, (1, 1), topic_id="id"))
    open_catalog(address.catalog).drop_table(address.identifier)
    log.topic_id = "another"
    with pytest.raises(SyncError, match="orders_dead_letters has dead letters of another topic"):
        opened(place, errors=OnBadRecord.DEAD_LETTER)
