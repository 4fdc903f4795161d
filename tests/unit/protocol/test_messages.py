"""Bytes of some messages written out by hand, and what holds of all declarations."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from importlib import import_module
from typing import Any

import pytest

from lakelog.protocol.connections import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lakelog.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from lakelog.protocol.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.protocol.registry import APIS
from lakelog.wire.codec import decode, encode
from lakelog.wire.schema import Message, Struct
from lakelog.wire.shapes import Field

MODULES = sorted(
    {api.request.__module__.rpartition(".")[2] for api in APIS.values()} | {"consumer_protocol"}
)

TOPIC_ID = bytes(range(16))
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1500,
    topic_data=[
        TopicProduceData(
            name="t",
            topic_id=TOPIC_ID,
            partition_data=[PartitionProduceData(index=3, records=b"abc")],
        )
    ],
)
FETCHED = FetchResponse(
    session_id=2,
    responses=[
        FetchableTopicResponse(
            topic="t",
            topic_id=TOPIC_ID,
            partitions=[
                PartitionData(
                    partition_index=3, high_watermark=9, aborted_transactions=None, records=b"abc"
                )
            ],
        )
    ],
)


@pytest.mark.parametrize(
    ("message", "version", "data"),
    [
        (ApiVersionsRequest(), 0, ""),
        (
            ApiVersionsRequest(client_software_name="me", client_software_version="1"),
            3,
            "03 6d65 02 31 00",
        ),
        (
            ApiVersionsResponse(
                error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=5)]
            ),
            0,
            "0023 00000001 0012 0000 0005",
        ),
        (MetadataRequest(topics=None), 1, "ffffffff"),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 4, "00000001 000174 01"),
        (
            PRODUCE,
            3,
            "ffff ffff 000005dc 00000001 000174 00000001 00000003 00000003 616263",
        ),
        (PRODUCE, 9, "00 ffff 000005dc 02 0274 02 00000003 04 616263 00 00 00"),
        (PRODUCE, 13, f"00 ffff 000005dc 02 {TOPIC_ID.hex()} 02 00000003 04 616263 00 00 00"),
        (
            FETCHED,
            13,
            f"00000000 0000 00000002 02 {TOPIC_ID.hex()} 02 00000003 0000 0000000000000009 "
            "ffffffffffffffff ffffffffffffffff 00 ffffffff 04 616263 00 00 00",
        ),
    ],
)
def test_golden_bytes(message: Any, version: int, data: str) -> None:
    assert encode(message, version) == bytes.fromhex(data)
    assert encode(decode(type(message), bytes.fromhex(data), version), version) == bytes.fromhex(
        data
    )


def structs(module_name: str) -> list[type[Struct]]:
    module = import_module(f"lakelog.protocol.{module_name}")
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    return [
        value
        for value in classes
        if issubclass(value, Struct) and value.__module__ == module.__name__
    ]


def expected_annotation(field: Field) -> Any:
    names: dict[str, Any] = {"bool": bool, "float64": float, "string": str, "uuid": bytes}
    base = field.struct or names.get(field.type_name, int)
    return types.GenericAlias(list, base) if field.is_array else base


@pytest.mark.parametrize("name", MODULES)
def test_annotations_match_the_fields(name: str) -> None:
    for kind in structs(name):
        hints = typing.get_type_hints(kind, localns={"records": Any})
        for field in kind.__fields__:
            hint = hints[field.name]
            nullable = field.nullable.highest >= 0
            if field.type_name in ("bytes", "records"):
                continue
            alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            assert (type(None) in alternatives) == nullable, (kind, field.name)
            assert expected_annotation(field) in alternatives, (kind, field.name)


@pytest.mark.parametrize("name", MODULES)
def test_every_message_and_struct_is_documented(name: str) -> None:
    module = import_module(f"lakelog.protocol.{name}")
    tree = ast.parse(inspect.getsource(module))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert classes
    assert [node.name for node in classes if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("name", MODULES)
def test_tags_are_unique_and_flexible_only(name: str) -> None:
    for kind in structs(name):
        tags = [field.tag for field in kind.__fields__ if field.tag is not None]
        assert len(tags) == len(set(tags)), kind
        if issubclass(kind, Message):
            for field in kind.__fields__:
                assert field.tag is None or field.versions.lowest >= kind.__flexible__.lowest
