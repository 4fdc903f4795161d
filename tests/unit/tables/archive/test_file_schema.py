"""The schema of a batch's files, with the fields of JSON values."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakelog.client.isolation import Batch
from lakelog.records.batch import read_header
from lakelog.records.builder import BatchBuilder
from lakelog.tables.archive.file_schema import add_unknown, file_schema
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.typed.columns import typed_fields
from lakelog.tables.typed.shapes import shape_of
from schema_registry import schema_registry
from unit.tables.registry.avro_values import record

TASKS = [[OffsetRange("orders", 0, 0, 1)]]


class Records:
    def __init__(self, value: bytes = b'{"a": 1}') -> None:
        self._value = value

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        builder = BatchBuilder()
        builder.append(0, None, self._value)
        data = builder.build(base_offset=wanted.start)
        yield read_header(data), memoryview(data)


def job(
    address: TableAddress, *, is_json: bool = False, registry_url: str = "", version: int = 0
) -> ArchiveJob:
    return ArchiveJob(
        bootstrap="b:1",
        topic="orders",
        topic_id="id",
        catalog=dict(address.catalog),
        identifier=address.identifier,
        location="",
        batch_bytes=1000,
        tasks=2,
        raw_timestamp_id=0,
        skip_lost=False,
        uuid=address.uuid,
        extents={},
        is_json=is_json,
        registry_url=registry_url,
        registry_version=version,
    )


def test_fields_of_a_batch_are_columns_of_its_files(address: TableAddress) -> None:
    plain = job(address, is_json=False)
    assert file_schema(plain, Records(), TASKS) == plain.schema
    assert typed_fields(address.load()) == []

    schema = file_schema(job(address, is_json=True), Records(), TASKS)
    assert schema.names == [*plain.schema.names, "data", "rescued"]
    assert [each.name for each in schema.field("data").type] == ["a"]
    assert schema.field("data").type.field(0).metadata


def test_fields_of_the_schemas_of_a_batch_are_columns_of_its_files(address: TableAddress) -> None:
    with schema_registry() as registry:
        asking = job(address, registry_url=registry.url)
        registry.register("orders-value", record("int"))
        schema = file_schema(asking, Records(b"\0\0\0\0\1"), TASKS)
        registry.register("orders-value", record("long", ["null", "string"]))
        wider = file_schema(asking, Records(b"\0\0\0\0\2"), TASKS)

        assert [(each.name, each.type) for each in schema.field("data").type] == [
            ("f0", pa.int32())
        ]
        assert [(each.name, each.type) for each in wider.field("data").type] == [
            ("f0", pa.int64()),
            ("f1", pa.large_string()),
        ]
        count = len(registry.requests)
        assert file_schema(asking, Records(b"\0\0\0\0\1"), TASKS) == wider
        assert len(registry.requests) == count, "a batch needs no request"
        add_unknown(asking, [shape_of([{"rare": True}])])
        assert "rare" in [each.name for each in typed_fields(address.load())[0].type]


def test_fields_of_values_without_ids_are_of_one_version(address: TableAddress) -> None:
    with schema_registry() as registry:
        registry.register("orders-value", record("int"))
        registry.register("orders-value", record("int", "int"))
        asking = job(address, registry_url=registry.url, version=1)
        schema = file_schema(asking, Records(b"\0\0\0\0\2"), TASKS)
    assert [each.name for each in schema.field("data").type] == ["f0"]


def test_fields_that_tasks_found_are_columns_of_later_files(address: TableAddress) -> None:
    found = [shape_of([]), shape_of([{"rare": True}])]
    add_unknown(job(address, is_json=False), found)
    assert typed_fields(address.load()) == []
    add_unknown(job(address, is_json=True), found)
    assert [each.name for each in typed_fields(address.load())[0].type] == ["rare"]


def test_a_failure_after_the_commit_is_logged_only(
    address: TableAddress, caplog: pytest.LogCaptureFixture
) -> None:
    with address.load().update_schema() as update:
        from pyiceberg.types import LongType

        update.add_column("data", LongType())
    with caplog.at_level(logging.INFO, "lakelog.tables"):
        add_unknown(job(address, is_json=True), [shape_of([{"a": 1}])])
    assert "new fields of 'orders' are added later" in caplog.text
