from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from lakelog.spark.registry import Decoder, from_registry, without_fixed
from lakelog.tables.registry.client import (
    KEY_HEADER,
    RegistryAccessError,
    RegistryAddress,
    SchemaMissingError,
)
from lakelog.tables.registry.schemas import SubjectVersion, schemas_of
from lakelog.tables.topic.errors import BadRecordError, OptionError
from lakelog.tables.typed.shapes import extended
from schema_registry import Registry, schema_registry
from unit.tables.registry.avro_values import encoded, record

FIXED = {"type": "fixed", "name": "F", "size": 2}
SCHEMA = record(
    "long",
    {"type": "array", "items": FIXED},
    {"type": "map", "values": "F"},
    {"type": "long", "logicalType": "timestamp-millis"},
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """With the schema of the subject `orders-value`."""
    with schema_registry() as running:
        running.register("orders-value", SCHEMA)
        yield running


def decoder(
    registry: Registry,
    *names: str,
    header: str = "",
    is_strict: bool = True,
    without_ids: SubjectVersion | None = None,
) -> Decoder:
    address = RegistryAddress(registry.url)
    data = without_fixed(extended(pa.struct([]), schemas_of(address).get(1).shape))
    made = Decoder(address, data, names, header, is_strict=is_strict, without_ids=without_ids)
    sent: Decoder = pickle.loads(pickle.dumps(made))
    return sent


def value(number: int) -> bytes:
    return encoded(
        SCHEMA,
        {"f0": number, "f1": [b"ab"], "f2": {"k": b"cd"}, "f3": datetime(2026, 1, 1, tzinfo=UTC)},
    )


def test_values_are_structs_of_sparks_types(registry: Registry) -> None:
    decode = decoder(registry, "value")
    assert decode.spark_type.simpleString() == (
        "struct<data:struct<f0:bigint,f1:array<binary>,f2:map<string,binary>,f3:timestamp>,"
        "rescued:string>"
    )
    found = decode(pa.array([b"\0\0\0\0\1" + value(7), None]))
    assert from_arrow_type(found.type) == decode.spark_type
    expected = {
        "f0": 7,
        "f1": [b"ab"],
        "f2": [("k", b"cd")],
        "f3": datetime(2026, 1, 1, tzinfo=UTC),
    }
    assert found.to_pylist() == [
        {"data": expected, "rescued": None},
        {"data": None, "rescued": None},
    ]


def test_ids_of_keys_are_in_a_header_of_their_own(registry: Registry) -> None:
    decode = decoder(registry, "value", "headers", header=KEY_HEADER)
    headers = [[{"key": "__key_schema_id", "value": b"\0\0\0\0\1"}]]
    (row,) = decode(pa.array([value(8)]), pa.array(headers)).to_pylist()
    assert row["data"]["f0"] == 8


def test_values_without_ids_are_of_the_given_version(registry: Registry) -> None:
    decode = decoder(registry, "value", without_ids=SubjectVersion("orders-value", 1))
    (row,) = decode(pa.array([value(9)])).to_pylist()
    assert row["data"]["f0"] == 9


def test_an_error_names_the_record_or_the_row(registry: Registry) -> None:
    columns = pa.array(["orders"]), pa.array([3]), pa.array([41])
    named = decoder(registry, "value", "topic", "partition", "offset")
    with pytest.raises(BadRecordError, match=r"^orders-3@41: .*byte 120.*mode=.PERMISSIVE"):
        named(pa.array([b"x"]), *columns)
    with pytest.raises(BadRecordError, match=r"^row 1 of a batch: the value cannot be read"):
        decoder(registry, "value")(pa.array([None, b"x"]))
    (row,) = decoder(registry, "value", is_strict=False)(pa.array([b"x"])).to_pylist()
    assert row["data"] is None
    assert "$error" in row["rescued"]


def test_wrong_arguments_are_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="mode is 'DROP': expected one of FAILFAST, PERMISSIVE"):
        from_registry("value", registry.url, subject="orders-value", mode="DROP")
    with pytest.raises(OptionError, match="place has to be the columns for topic"):
        from_registry("value", registry.url, subject="orders-value", place=["topic"])
    with pytest.raises(ValueError, match="is not the URL of a schema registry"):
        from_registry("value", "registry", subject="orders-value")
    with pytest.raises(SchemaMissingError, match="version latest of the subject 'x'"):
        from_registry("value", registry.url, subject="x")
    registry.register("plain-value", '"string"')
    with pytest.raises(OptionError, match="'plain-value' has no fields: expected a record"):
        from_registry("value", registry.url, subject="plain-value")
    registry.user_info = "me:secret"
    monkeypatch.setenv("LAKELOG_SCHEMA_REGISTRY_USER_INFO", "me:secret")
    with pytest.raises(OptionError, match="has no fields"):
        from_registry("value", registry.url, subject="plain-value")
    with pytest.raises(RegistryAccessError, match="requires credentials"):
        from_registry("value", registry.url, subject="plain-value", user_info="")
