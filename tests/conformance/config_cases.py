"""Bad requests about configurations and the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.case import Case, Difference, World
from lakelog.protocol.cluster import (
    DescribeClusterRequest,
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from lakelog.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
    ListConfigResourcesRequest,
)
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.protocol.replicas import DescribableLogDirTopic, DescribeLogDirsRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
RETENTION = ("retention.ms", SET, "5")

Change = tuple[str, int, str | None]


def _alter(
    *changes: Change, kind: int = TOPIC, name: str | None = None, copies: int = 1
) -> Callable[[World], Any]:
    """Asks for validation only; `name` None is the world's topic."""

    def build(world: World) -> Any:
        resource = IncrementalResource(
            resource_type=kind,
            resource_name=world.topic if name is None else name,
            configs=[
                IncrementalConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        return IncrementalAlterConfigsRequest(resources=[resource] * copies, validate_only=True)

    return build


INCREMENTAL = [
    Case("IncrementalAlterConfigs", name, build)
    for name, build in (
        ("accepted", _alter(RETENTION)),
        ("no changes", _alter()),
        ("no resources", _alter(copies=0)),
        ("a resource twice", _alter(RETENTION, copies=2)),
        ("a key twice", _alter(RETENTION, ("retention.ms", SET, "6"))),
        ("a key set and deleted", _alter(RETENTION, ("retention.ms", DELETE, None))),
        ("unknown topic", _alter(RETENTION, name="no-such-topic")),
        ("empty topic", _alter(RETENTION, name="")),
        ("topic that cannot be", _alter(RETENTION, name="a b")),
        ("unknown key", _alter(("no.such.key", SET, "1"))),
        ("unknown key deleted", _alter(("no.such.key", DELETE, None))),
        ("wrong type", _alter(("retention.ms", SET, "soon"))),
        ("out of bounds", _alter(("retention.ms", SET, "-2"))),
        ("no value", _alter(("retention.ms", SET, None))),
        ("empty value", _alter(("retention.ms", SET, ""))),
        ("empty list", _alter(("cleanup.policy", SET, ""))),
        ("unknown item", _alter(("cleanup.policy", APPEND, "shrink"))),
        ("appended", _alter(("cleanup.policy", APPEND, "compact"))),
        ("subtracted an absent value", _alter(("cleanup.policy", SUBTRACT, "compact"))),
        ("appended to a number", _alter(("retention.ms", APPEND, "5"))),
        ("subtracted from a number", _alter(("retention.ms", SUBTRACT, "5"))),
        ("unknown resource type", _alter(RETENTION, kind=99)),
        ("unknown resource type 0", _alter(RETENTION, kind=0)),
        (
            "lags that contradict",
            _alter(("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")),
        ),
    )
]
INCREMENTAL += [
    Case(
        "IncrementalAlterConfigs",
        f"operation {operation}",
        _alter(("retention.ms", operation, "5")),
        differs=Difference("INVALID_REQUEST", "UNKNOWN_SERVER_ERROR", "Kafka fails inside"),
    )
    for operation in (9, -1)
]


def _of_broker(*changes: Change, name: str = "1") -> Callable[[World], Any]:
    return _alter(*changes, kind=BROKER, name=name)


OF_A_BROKER = [
    Case("IncrementalAlterConfigs", f"broker: {name}", build)
    for name, build in (
        ("accepted", _of_broker(("message.max.bytes", SET, "5000000"))),
        ("default of all", _of_broker(("message.max.bytes", SET, "5000000"), name="")),
        ("unknown broker", _of_broker(("message.max.bytes", SET, "5000000"), name="9")),
        ("no number", _of_broker(("message.max.bytes", SET, "5000000"), name="one")),
        ("read-only key", _of_broker(("node.id", SET, "7"))),
        ("read-only key for all", _of_broker(("socket.request.max.bytes", SET, "7"), name="")),
        ("wrong type", _of_broker(("message.max.bytes", SET, "big"))),
        ("out of bounds", _of_broker(("message.max.bytes", SET, "-1"))),
        ("per-broker key for all", _of_broker(("ssl.keystore.type", SET, "JKS"), name="")),
        ("no value", _of_broker(("message.max.bytes", SET, None))),
        ("deleted an unset key", _of_broker(("message.max.bytes", DELETE, None))),
        ("appended to a number", _of_broker(("message.max.bytes", APPEND, "1"))),
    )
]


OF_A_BROKER += [
    Case("IncrementalAlterConfigs", f"broker: {key}={value}", _of_broker((key, SET, str(value))))
    for key, values in (
        ("background.threads", (4, 5, 20, 21)),
        ("log.cleaner.threads", (0, 1, 2, 3, 100_000)),
        ("num.io.threads", (3, 4, 16, 17)),
        ("num.network.threads", (1, 6, 7)),
        ("num.recovery.threads.per.data.dir", (1, 4, 5)),
        ("num.replica.fetchers", (1, 2, 3)),
        ("remote.log.reader.threads", (4, 5, 20, 21)),
        ("remote.log.manager.copier.thread.pool.size", (4, 5, 20, 21)),
        ("remote.log.manager.expiration.thread.pool.size", (4, 5, 20, 21)),
        ("remote.log.manager.follower.thread.pool.size", (1, 4, 5)),
        ("max.connections", (-1, 0, 1)),
        ("max.connections.per.ip", (0, 1)),
        ("max.connection.creation.rate", (-1, 0, 1)),
        ("log.cleaner.backoff.ms", (-1, 0)),
        ("log.cleaner.io.buffer.size", (-1, 0)),
        ("log.cleaner.io.max.bytes.per.second", (0, 1)),
        ("log.cleaner.dedupe.buffer.size", (1, 1 << 20, (1 << 20) + 1)),
        ("log.segment.bytes", (1, 1 << 20)),
        ("log.index.size.max.bytes", (3, 4)),
        ("log.retention.ms", (-1, 0, 1)),
        ("producer.id.expiration.ms", (0, 1)),
        ("message.max.bytes", (0,)),
        ("min.insync.replicas", (0,)),
        ("log.flush.interval.messages", (0, 1)),
        ("log.cleaner.min.cleanable.ratio", (-1, 0, 1, 2)),
        ("log.cleaner.max.compaction.lag.ms", (0, 1)),
    )
    for value in values
]
OF_A_BROKER += [
    Case(
        "IncrementalAlterConfigs",
        "broker: log.retention.ms=-2",
        _of_broker(("log.retention.ms", SET, "-2")),
        differs=Difference("INVALID_REQUEST", "NONE", "only -1 means no limit"),
    ),
    Case(
        "IncrementalAlterConfigs",
        "broker: min.insync.replicas=1",
        _of_broker(("min.insync.replicas", SET, "1")),
        differs=Difference("NONE", "INVALID_CONFIG", "there are no eligible leader replicas here"),
    ),
]


def _replace(
    *configs: tuple[str, str | None], kind: int = TOPIC, name: str | None = None, copies: int = 1
) -> Callable[[World], Any]:
    def build(world: World) -> Any:
        resource = AlterConfigsResource(
            resource_type=kind,
            resource_name=world.topic if name is None else name,
            configs=[AlterableConfig(name=key, value=value) for key, value in configs],
        )
        return AlterConfigsRequest(resources=[resource] * copies, validate_only=True)

    return build


REPLACE = [
    Case("AlterConfigs", name, build)
    for name, build in (
        ("accepted", _replace(("retention.ms", "5"))),
        ("nothing set", _replace()),
        ("no resources", _replace(copies=0)),
        ("unknown topic", _replace(("retention.ms", "5"), name="no-such-topic")),
        ("unknown key", _replace(("no.such.key", "5"))),
        ("wrong type", _replace(("retention.ms", "soon"))),
        ("no value", _replace(("retention.ms", None))),
        ("a key twice", _replace(("retention.ms", "5"), ("retention.ms", "6"))),
        ("unknown resource type", _replace(("retention.ms", "5"), kind=99)),
        ("broker", _replace(("message.max.bytes", "5000000"), kind=BROKER, name="1")),
        ("unknown broker", _replace(("message.max.bytes", "5000000"), kind=BROKER, name="9")),
        ("read-only key", _replace(("node.id", "7"), kind=BROKER, name="1")),
    )
]
REPLACE.append(
    Case(
        "AlterConfigs",
        "a resource twice",
        _replace(("retention.ms", "5"), copies=2),
        (2, 2),
        Difference("INVALID_REQUEST", "no answer", "Kafka fails inside"),
    )
)


def _describe(kind: int, name: str, keys: list[str] | None = None) -> Callable[[World], Any]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return lambda world: DescribeConfigsRequest(resources=[resource], include_synonyms=True)


DESCRIBE = [
    Case("DescribeConfigs", name, build)
    for name, build in (
        ("topic", _describe(TOPIC, "conformance")),
        ("unknown key", _describe(TOPIC, "conformance", ["no.such.key"])),
        ("no keys", _describe(TOPIC, "conformance", [])),
        ("unknown topic", _describe(TOPIC, "no-such-topic")),
        ("empty topic", _describe(TOPIC, "")),
        ("topic that cannot be", _describe(TOPIC, "a b")),
        ("broker", _describe(BROKER, "1")),
        ("default of all brokers", _describe(BROKER, "")),
        ("unknown broker", _describe(BROKER, "9")),
        ("no number", _describe(BROKER, "one")),
        ("unknown resource type", _describe(99, "x")),
        ("resource type 0", _describe(0, "x")),
        ("no resources", lambda w: DescribeConfigsRequest(resources=[])),
    )
]


def _level(feature: str, level: int, upgrade_type: int = 1) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)


def _finalize(updates: list[FeatureUpdateKey]) -> Callable[[World], UpdateFeaturesRequest]:
    return lambda world: UpdateFeaturesRequest(feature_updates=updates)


CLUSTER = [
    Case(
        "ListConfigResources",
        "unknown type",
        lambda w: ListConfigResourcesRequest(resource_types=[99]),
        (1, 1),
    ),
    Case("ListConfigResources", "all", lambda w: ListConfigResourcesRequest()),
    Case("DescribeCluster", "brokers", lambda w: DescribeClusterRequest()),
    Case(
        "UnregisterBroker",
        "of an unknown broker",
        lambda w: UnregisterBrokerRequest(broker_id=w.node + 1),
    ),
    Case(
        "UnregisterBroker",
        "of a negative id",
        lambda w: UnregisterBrokerRequest(broker_id=-1),
    ),
    *(
        Case("UpdateFeatures", name, _finalize(updates), versions)
        for name, updates, versions in (
            ("no feature", [], (0, 99)),
            ("an unknown feature", [FeatureUpdateKey(feature="no", max_version_level=1)], (0, 99)),
            ("an unknown level", [_level("transaction.version", 99)], (0, 99)),
            ("an unknown upgrade type", [_level("transaction.version", 2, 9)], (1, 99)),
            ("a lower level", [_level("transaction.version", 1)], (0, 99)),
            ("one twice", [_level("transaction.version", 2)] * 2, (0, 99)),
        )
    ),
    Case(
        "DescribeCluster",
        "controllers of a broker",
        lambda w: DescribeClusterRequest(endpoint_type=2),
        (1, 2),
    ),
    Case(
        "DescribeCluster",
        "unknown endpoint type",
        lambda w: DescribeClusterRequest(endpoint_type=9),
        (1, 2),
    ),
    Case(
        "DescribeLogDirs",
        "unknown topic",
        lambda w: DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic="no-such-topic", partitions=[0])]
        ),
    ),
    Case("DescribeLogDirs", "no topics", lambda w: DescribeLogDirsRequest(topics=[])),
    Case(
        "ApiVersions",
        "name of software that cannot be",
        lambda w: ApiVersionsRequest(client_software_name="a b", client_software_version="1"),
        (3, 99),
    ),
    Case(
        "ApiVersions",
        "no version of the software",
        lambda w: ApiVersionsRequest(client_software_name="a", client_software_version=""),
        (3, 99),
    ),
]

CASES = [*INCREMENTAL, *OF_A_BROKER, *REPLACE, *DESCRIBE, *CLUSTER]
