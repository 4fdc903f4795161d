"""Every declaration against the JSON schema of the same name inside Kafka's client jar."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kafka_jars
from lakelog.coordinator.group.records import (
    CONSUMER_GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lakelog.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from lakelog.protocol.api import OWN_TAGS
from lakelog.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from lakelog.protocol.registry import APIS
from lakelog.wire.shapes import Field, Versions, parse

pytestmark = pytest.mark.java

API_MESSAGES = [
    *(kind for api in APIS.values() for kind in (api.request, api.response)),
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]
RENAMED = {
    "AlteredTopic": "TopicData",
    "AlteredPartition": "PartitionData",
    "DescribedConsumerGroup": "DescribedGroup",
    "DescribedTransaction": "TransactionState",
    "DivergingEpoch": "EpochEndOffset",
    "IncrementalConfig": "AlterableConfig",
    "IncrementalResource": "AlterConfigsResource",
    "ListedTransaction": "TransactionState",
    "MemberAssignment": "Assignment",
    "MemberPartitions": "TopicPartitions",
}
"""Structs that share their name in Kafka's schemas with another struct of the same module."""
GROUP_RECORDS = [
    *(OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue),
    *(kind for pair in CONSUMER_GROUP_RECORDS.values() for kind in pair),
]
TRANSACTION_RECORDS = [TransactionLogKey, TransactionLogValue]
MESSAGES = [
    *(("kafka-clients", kind) for kind in API_MESSAGES),
    *(("kafka-group-coordinator", kind) for kind in GROUP_RECORDS),
    *(("kafka-transaction-coordinator", kind) for kind in TRANSACTION_RECORDS),
]


@cache
def schema(jar: str, name: str) -> Any:
    """The schema of a message; a `jar` is named by the part before its version."""
    folder = Path(kafka_jars.class_path("formats")).parent
    (path,) = [found for found in folder.glob(f"{jar}-*.jar") if re.match(rf"{jar}-\d", found.name)]
    with zipfile.ZipFile(path) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def attribute(name: str) -> str:
    """`LogAppendTimeMs` is `log_append_time_ms` here."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def schema_range(text: str, within: Versions) -> Versions:
    found = parse(text)
    return Versions(max(found.lowest, within.lowest), min(found.highest, within.highest))


def schema_default(field: dict[str, Any], base: str) -> Any:
    """The value that Kafka's generator gives a field; a struct's is checked through its fields."""
    default = field.get("default")
    if default == "null" or (base == "records" and "nullableVersions" in field):
        return None
    if field["type"].startswith("[]"):
        return []
    if base == "bool":
        return str(default).lower() == "true"
    if base in ("string", "bytes", "records"):
        return default or ("" if base == "string" else b"")
    if base == "uuid":
        return bytes(16)
    if base == "float64":
        return float(default or 0)
    return "struct" if base[0].isupper() else int(str(default or 0), 0)


def declared_default(field: Field) -> Any:
    if field.struct is not None and not field.is_array and field.default is not None:
        return "struct"
    return field.new_default()


class Comparison:
    """Walks a schema and a declaration together, for all versions of the message."""

    def __init__(self, message: Any, root: dict[str, Any]) -> None:
        self.common = {struct["name"]: struct for struct in root.get("commonStructs", ())}
        self.compare(message, root["fields"], message.__versions__)

    def compare(self, kind: Any, fields: list[dict[str, Any]], within: Versions) -> None:
        where = kind.__name__
        # Kafka ignores unknown tags (KIP-482).
        shared = [field for field in kind.__fields__ if (field.tag or 0) < OWN_TAGS]
        assert [field.name for field in shared] == [attribute(field["name"]) for field in fields], (
            where
        )
        for ours, theirs in zip(shared, fields, strict=True):
            self.compare_field(f"{where}.{ours.name}", ours, theirs, within)

    def compare_field(
        self, where: str, ours: Field, theirs: dict[str, Any], within: Versions
    ) -> None:
        is_array = theirs["type"].startswith("[]")
        base = theirs["type"].removeprefix("[]")
        type_name = RENAMED.get(ours.type_name, ours.type_name)
        assert (type_name, ours.is_array) == (base, is_array), where
        present = schema_range(theirs.get("versions", theirs.get("taggedVersions", "")), within)
        nullable = parse(theirs.get("nullableVersions", "none"))
        tagged = parse(theirs.get("taggedVersions", "none"))
        for version in within:
            exists = version in present
            assert (version in ours.versions) == exists, (where, version)
            if exists:
                assert (version in ours.nullable) == (version in nullable), (where, version)
                assert (ours.tag is not None) == (version in tagged), (where, version)
        assert ours.tag == theirs.get("tag"), where
        assert declared_default(ours) == schema_default(theirs, base), where
        if ours.struct is not None:
            assert ours.struct.__name__ == ours.type_name
            inner = theirs.get("fields") or self.common[base]["fields"]
            self.compare(ours.struct, inner, present)


@pytest.mark.parametrize(
    ("jar", "message"), MESSAGES, ids=lambda value: getattr(value, "__name__", value)
)
def test_declarations_agree_with_the_schemas(jar: str, message: Any) -> None:
    root = schema(jar, message.__name__)
    assert repr(message.__versions__) == repr(parse(root["validVersions"]))
    assert repr(message.__flexible__) == repr(parse(root["flexibleVersions"]))
    Comparison(message, root)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_registry_agrees_with_the_schemas(api: Any) -> None:
    request = schema("kafka-clients", f"{api.name}Request")
    versions = parse(request["validVersions"])
    assert api.key == request["apiKey"] == schema("kafka-clients", f"{api.name}Response")["apiKey"]
    assert api.min_version == versions.lowest
    assert api.max_version == versions.highest - bool(request.get("latestVersionUnstable"))
    flexible = parse(request["flexibleVersions"])
    if versions.highest in flexible:
        assert api.flexible_from == flexible.lowest
    else:
        assert api.flexible_from > api.max_version


def test_a_wrong_declaration_is_noticed() -> None:
    heartbeat = APIS[12].request
    root = schema("kafka-clients", "HeartbeatRequest")
    changed = json.loads(json.dumps(root))
    changed["fields"][3]["versions"] = "2+"
    with pytest.raises(AssertionError, match="group_instance_id"):
        Comparison(heartbeat, changed)
