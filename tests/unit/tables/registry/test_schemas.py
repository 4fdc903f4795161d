from __future__ import annotations

import sys

import pytest

from lakelog.tables.registry import schemas as module
from lakelog.tables.registry.client import RegistryAddress, RegistryClient
from lakelog.tables.registry.errors import SchemaMissingError, UnsupportedSchemaError
from lakelog.tables.registry.schemas import Schemas, schemas_of
from schema_registry import Registry

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "Address"}],
}


def schemas(registry: Registry) -> Schemas:
    return Schemas(RegistryClient(RegistryAddress(registry.url)))


def test_each_id_is_asked_once_in_a_process(registry: Registry) -> None:
    registry.register("t-value", ADDRESS)
    for _ in range(1000):
        known = schemas_of(RegistryAddress(registry.url))
        assert list(known.get(1).shape.fields) == ["town"]
    assert registry.requests == ["/schemas/ids/1"]


def test_unsupported_schemas_are_asked_once_too(registry: Registry) -> None:
    registry.register("t-value", 'syntax = "proto3";', "PROTOBUF")
    registry.register("t-value", "x", "THRIFT")
    registry.register("t-value", '{"type": "nothing"}')
    known = schemas(registry)
    for _ in range(2):
        with pytest.raises(UnsupportedSchemaError, match="PROTOBUF, which is not supported: dec"):
            known.get(1)
        with pytest.raises(UnsupportedSchemaError, match="type 'THRIFT' is not supported"):
            known.get(2)
        with pytest.raises(UnsupportedSchemaError, match="cannot be parsed"):
            known.get(3)
    assert len(registry.requests) == 3


def test_an_unknown_id_is_asked_again_after_a_while(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schemas(registry)
    for _ in range(5):
        with pytest.raises(SchemaMissingError, match="schema id 1"):
            known.get(1)
    assert len(registry.requests) == 1, "hostile records must not be requests each"
    registry.register("t-value", '"long"')
    monkeypatch.setattr(module, "_MISSING_S", -1.0)
    with pytest.raises(SchemaMissingError):
        known.get(2)
    registry.register("t-value", '"string"')
    known.get(2)


def test_the_schemas_that_are_kept_are_limited(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SCHEMAS_MAX", 2)
    for name in ("a", "b", "c"):
        registry.register(name, {"type": "fixed", "name": name, "size": 1})
    known = schemas(registry)
    for number in (1, 2, 1, 3, 1, 2):
        known.get(number)
    assert [path[-1] for path in registry.requests] == ["1", "2", "3", "2"]


def test_references_are_resolved_at_any_depth(registry: Registry) -> None:
    registry.register("address", ADDRESS)
    to_address = [{"name": "Address", "subject": "address", "version": 1}]
    registry.register("order", ORDER, references=to_address)
    both = [*to_address, {"name": "Order", "subject": "order", "version": 1}]
    number = registry.register("t-value", '["Order", "Address"]', references=both)

    shape = schemas(registry).get(number).shape
    assert list(shape.fields) == ["Order", "Address"]
    assert list(shape.fields["Order"].fields["to"].fields) == ["town"]
    assert len(registry.requests) == 3


def test_references_in_a_circle_or_too_many_end(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    to_itself = [{"name": "Other", "subject": "t-value", "version": 1}]
    registry.register("t-value", ORDER, references=to_itself)
    with pytest.raises(UnsupportedSchemaError):
        schemas(registry).get(1)
    monkeypatch.setattr(module, "_REFERENCES_MAX", 0)
    with pytest.raises(UnsupportedSchemaError, match="more than 0 references"):
        schemas(registry).get(1)


def test_the_newest_version_of_a_subject_changes_but_no_version_does(registry: Registry) -> None:
    registry.register("t-value", ADDRESS)
    known = schemas(registry)
    first = known.newest("t-value")
    registry.register("t-value", {**ADDRESS, "fields": []})
    assert (first.version, known.newest("t-value").version) == (1, 2)
    registry.requests.clear()
    assert list(known.get(first).shape.fields) == list(known.get(first).shape.fields) == ["town"]
    assert registry.requests == ["/subjects/t-value/versions/1"]


def test_avro_without_fastavro_says_what_to_install(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "lakelog.tables.registry.avro", raising=False)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    registry.register("t-value", '{"type": "object"}', "JSON")
    registry.register("t-value", '"long"')
    known = schemas(registry)
    assert not known.get(1).shape.fields
    with pytest.raises(ModuleNotFoundError, match=r"pip install '\.\[avro\]'"):
        known.get(2)
