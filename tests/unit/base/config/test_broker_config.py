from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigError, ConfigType, Effect
from lakelog.base.endpoint import Endpoint, parse_endpoint


def test_a_stock_server_properties_is_taken() -> None:
    config, warnings = BrokerConfig.from_mapping(
        {
            "process.roles": "broker,controller",
            "node.id": "4",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "advertised.listeners": "PLAINTEXT://kafka:9092",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "num.network.threads": "3",
            "log.dirs": "/data",
            "offsets.topic.replication.factor": "1",
            "log.retention.hours": "24",
        }
    )
    assert config.node_id == 4
    assert config.data_directory == "/data"
    assert config.listeners[0] == Endpoint("PLAINTEXT", "localhost", 9092)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "kafka", 9092),)
    assert warnings == [
        "controller.listener.names has no effect: the metadata store elects the controller, and "
        "keeps the metadata"
    ]


def test_an_unknown_key_is_named_with_the_nearest_one() -> None:
    _, warnings = BrokerConfig.from_mapping({"log.retention.hour": "1", "zzz": "1"})
    assert warnings == [
        "unknown key log.retention.hour ignored: did you mean log.retention.hours?",
        "unknown key zzz ignored",
    ]


def test_keys_of_older_kafkas_are_explained() -> None:
    _, warnings = BrokerConfig.from_mapping({"zookeeper.connect": "localhost:2181"})
    assert warnings == [
        "zookeeper.connect has no effect: lakelog.metadata.store names the ensemble"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "many"),
        ("num.io.threads", "many"),
        ("compression.type", "brotli"),
        ("log.cleaner.min.cleanable.ratio", "2"),
        ("log.cleaner.min.compaction.lag.ms", "-1"),
        ("security.inter.broker.protocol", "SASL_SSL"),
        ("listeners", "SASL_SSL://:9093"),
        ("listeners", "localhost:9092"),
        ("listeners", ""),
        ("listeners", "PLAINTEXT://:70000"),
        ("authorizer.class.name", "org.example.Authorizer"),
        ("log.dirs", "/a,/b"),
        ("process.roles", "controller"),
        ("listener.security.protocol.map", "PLAINTEXT:SSL"),
        ("group.min.session.timeout.ms", "99999999"),
    ],
)
def test_a_bad_value_names_its_key(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.from_mapping({name: text})


def test_two_numbers_for_one_broker_are_refused() -> None:
    assert BrokerConfig({"broker.id": "3"}).node_id == 3
    with pytest.raises(ConfigError, match=r"differs from node\.id"):
        BrokerConfig({"broker.id": "3", "node.id": "4"})


def test_dynamic_layers_stand_over_the_static_one() -> None:
    static = BrokerConfig({"message.max.bytes": "1"})
    both = static.with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    default = static.with_dynamic({"message.max.bytes": "2"}, {})
    assert [c.get_int("message.max.bytes") for c in (static, default, both)] == [1, 2, 3]


def test_every_default_obeys_its_own_bounds_and_every_key_has_words() -> None:
    for key in BROKER_CONFIGS.values():
        if key.default is not None and key.name != "broker.id":
            assert key.parse(key.default) == key.default_value
        assert key.doc if key.effect is Effect.HONOURED else key.reason


def test_secrets_are_marked() -> None:
    assert BROKER_CONFIGS["ssl.key.password"].sensitive
    assert BROKER_CONFIGS["ssl.key.password"].type is ConfigType.PASSWORD


@pytest.mark.parametrize(
    ("text", "host"), [("A://[::1]:1", "::1"), ("a://:1", ""), ("A://h.example:1", "h.example")]
)
def test_an_endpoint_is_read(text: str, host: str) -> None:
    assert parse_endpoint(text) == Endpoint("A", host, 1)
