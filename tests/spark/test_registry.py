"""Values that a schema registry describes, as columns of tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyiceberg.catalog import load_catalog

from lakelog.client.admin import Admin, ResourceType
from lakelog.client.producer.api import Producer
from lakelog.spark import from_registry
from lakelog.spark.archive.sync import SyncError, SyncProgress, SyncResult, sync_topic
from schema_registry import Registry, schema_registry
from spark.topics import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

V1: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
V2: dict[str, Any] = {
    **V1,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", PRICE], "default": None},
    ],
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as running:
        yield running


class Orders:
    """A producer of a topic, whose values are written as confluent-kafka does."""

    def __init__(self, bootstrap: str, topic: str, registry: Registry) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._client = SchemaRegistryClient({"url": registry.url})

    def send(self, schema: Any, *values: Any, in_header: bool = False) -> None:
        conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
        serializer = AvroSerializer(self._client, json.dumps(schema), conf=conf)
        with Producer(self._bootstrap) as producer:
            for value in values:
                headers: Any = []
                context = SerializationContext(self._topic, MessageField.VALUE, headers)
                data = value if isinstance(value, bytes) else serializer(value, context)
                producer.send(self._topic, data, headers=tuple(headers))


def rows(result: SyncResult) -> list[dict[str, Any]]:
    table = load_catalog("lakelog", **result.catalog).load_table(result.table)
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("offset").to_pylist()
    return found


@pytest.mark.usefixtures("without_spark")
def test_fields_of_schemas_are_columns_also_of_later_schemas(
    bootstrap: str,
    make_topic: MakeTopic,
    registry: Registry,
    tmp_path: Path,
) -> None:
    topic = make_topic(partitions=1)
    orders = Orders(bootstrap, topic, registry)
    with Admin(bootstrap) as admin:
        keys = {"table.value.format": "registry", "table.schema.registry.url": registry.url}
        admin.configs.alter(ResourceType.TOPIC, topic, keys)
    later = [
        lambda: orders.send(V2, {"id": 2**40, "price": Decimal("9.50")}, in_header=True),
        lambda: orders.send(V1, {"id": 3}),
    ]
    stop = threading.Event()

    def on_progress(_: SyncProgress) -> None:
        later.pop(0)() if later else stop.set()

    orders.send(V1, {"id": 1})
    folder = str(tmp_path)
    result = sync_topic(
        bootstrap, topic, folder, follow=True, every_s=0.2,
        progress=on_progress, stop=stop,
    )  # fmt: skip
    assert [row["data"] for row in rows(result)] == [
        {"id": 1, "price": None},
        {"id": 2**40, "price": Decimal("9.50")},
        {"id": 3, "price": None},
    ]
    assert [row["rescued"] for row in rows(result)] == [None, None, None]

    # Of the newest version, without its id, and then a value that is damaged.
    with Admin(bootstrap) as admin:
        keys = {"table.value.format": "registry-latest"}
        admin.configs.alter(ResourceType.TOPIC, topic, keys)
    orders.send(V2, b"\x08\0", b"damaged")
    with pytest.raises(SyncError, match=rf"^{topic}-0@4: the value cannot be read: its bytes"):
        sync_topic(bootstrap, topic, folder)


def test_values_are_typed_columns_of_a_dataframe(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, registry: Registry
) -> None:
    topic = make_topic(partitions=1)
    orders = Orders(bootstrap, topic, registry)
    orders.send(V1, {"id": 1})
    orders.send(V2, {"id": 2**40, "price": Decimal("9.50")}, in_header=True)
    reader = spark.read.format("lakelog").option("kafka.bootstrap.servers", bootstrap)
    source = reader.option("subscribe", topic).option("includeHeaders", "true")

    def typed(mode: str) -> DataFrame:
        column = from_registry(
            "value", registry.url, subject=f"{topic}-value", headers="headers", mode=mode
        )
        return source.load().select("offset", column.alias("order")).select("offset", "order.*")

    found = typed("FAILFAST").select("offset", "data.*", "rescued").orderBy("offset")
    assert found.schema.simpleString() == (
        "struct<offset:bigint,id:bigint,price:decimal(9,2),rescued:string>"
    )
    assert [tuple(row) for row in found.collect()] == [
        (0, 1, None, None),
        (1, 2**40, Decimal("9.50"), None),
    ]
    orders.send(V1, b"damaged")
    with pytest.raises(Exception, match=rf"{topic}-0@2: the value cannot be read: .*PERMISSIVE"):
        typed("FAILFAST").collect()
    (row,) = typed("PERMISSIVE").where("offset = 2").collect()
    assert row.data is None
    assert "$error" in row.rescued
