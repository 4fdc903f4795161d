from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigError, ConfigType, UpdateMode
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.configs import (
    THREAD_COUNTS,
    ConfigChange,
    Operation,
    Replacement,
    ResourceChange,
    check_running_change,
    plan_alter_configs,
    plan_replace_configs,
    plan_stored_configs,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ConfigRecord, ResourceType

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = Operation
STATIC = BrokerConfig({})


def _alter(
    image: MetadataImage, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> tuple[MetadataImage, ErrorCode]:
    wanted = ResourceChange(kind, name, [ConfigChange(*change) for change in changes])
    plan = plan_alter_configs(image, [wanted], broker=STATIC)
    return image.apply_all(plan.records, image.end), plan.result[0].error


def _topic(image: MetadataImage) -> dict[str, str]:
    return dict(image.configs(TOPIC, "orders"))


def test_a_key_is_set_and_deleted(image: MetadataImage) -> None:
    image, error = _alter(image, TOPIC, "orders", ("retention.ms", SET, "5"))
    assert error is ErrorCode.NONE
    assert _topic(image) == {"retention.ms": "5"}
    image, error = _alter(image, TOPIC, "orders", ("retention.ms", DELETE, None))
    assert error is ErrorCode.NONE
    assert _topic(image) == {}


def test_lists_grow_and_shrink_from_their_default(image: MetadataImage) -> None:
    image, _ = _alter(image, TOPIC, "orders", ("cleanup.policy", APPEND, "compact,delete"))
    assert _topic(image) == {"cleanup.policy": "delete,compact"}
    image, _ = _alter(image, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
    assert _topic(image) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "none", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "or/ders", [("retention.ms", SET, "5")], ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "orders", [("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("no.such", SET, "x")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", 4, "5")], ErrorCode.INVALID_REQUEST),
        (
            TOPIC,
            "orders",
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            ErrorCode.INVALID_REQUEST,
        ),
        (
            TOPIC,
            "orders",
            [("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")],
            ErrorCode.INVALID_CONFIG,
        ),
        (BROKER, "9", [("message.max.bytes", SET, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "x", [("message.max.bytes", SET, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("message.max.bytes", SET, "x")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("num.partitions", SET, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1", [("no.such", SET, "5")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [("ssl.keystore.location", SET, "/k")], ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER_LOGGER, "1", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
        (99, "1", [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_resource_is_altered_whole_or_not_at_all(
    image: MetadataImage,
    kind: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    code: ErrorCode,
) -> None:
    harmless = {TOPIC: ("segment.ms", SET, "9"), BROKER: ("log.roll.ms", SET, "9")}.get(
        ResourceType(kind) if kind != 99 else TOPIC, ("segment.ms", SET, "9")
    )
    after, error = _alter(image, kind, name, harmless, *changes)
    assert error is code
    assert after == image


def test_stored_settings_that_do_not_fit_refuse_a_topic_and_no_other_resource(
    image: MetadataImage,
) -> None:
    """As an earlier version of the brokers may have stored them."""
    stored = {"group.min.session.timeout.ms": "100000", "group.max.session.timeout.ms": "10"}
    records = [ConfigRecord(BROKER, "", key, value) for key, value in stored.items()]
    image = image.apply_all(records, image.end)
    topic = ResourceChange(TOPIC, "orders", [ConfigChange("retention.ms", SET, "5")])
    group = ResourceChange(ResourceType.GROUP, "g", [])
    plan = plan_alter_configs(image, [topic, group], broker=STATIC)
    assert [result.error for result in plan.result] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]


def test_dynamic_broker_keys_are_set_for_one_and_for_all(image: MetadataImage) -> None:
    image, one = _alter(image, BROKER, "1", ("message.max.bytes", SET, "5"))
    image, every = _alter(image, BROKER, "", ("message.max.bytes", SET, "6"))
    assert (one, every) == (ErrorCode.NONE, ErrorCode.NONE)
    assert dict(image.configs(BROKER, "1")) == {"message.max.bytes": "5"}
    assert dict(image.configs(BROKER, "")) == {"message.max.bytes": "6"}


def test_settings_of_a_newer_version_can_be_deleted(image: MetadataImage) -> None:
    image = image.apply(ConfigRecord(TOPIC, "orders", "from.the.future", "1"))
    image, error = _alter(image, TOPIC, "orders", ("segment.ms", SET, "9"))
    assert error is ErrorCode.NONE
    image, error = _alter(image, TOPIC, "orders", ("from.the.future", DELETE, None))
    assert error is ErrorCode.NONE
    assert _topic(image) == {"segment.ms": "9"}


def test_setting_the_current_value_writes_nothing(image: MetadataImage) -> None:
    image, _ = _alter(image, TOPIC, "orders", ("segment.ms", SET, "9"))
    wanted = ResourceChange(TOPIC, "orders", [ConfigChange("segment.ms", SET, "9")])
    assert plan_alter_configs(image, [wanted], broker=STATIC).records == ()


def test_a_resource_named_twice_is_refused_and_validating_changes_nothing(
    image: MetadataImage,
) -> None:
    wanted = ResourceChange(TOPIC, "orders", [ConfigChange("segment.ms", SET, "9")])
    plan = plan_alter_configs(image, [wanted, wanted], broker=STATIC)
    assert [result.error for result in plan.result] == [ErrorCode.INVALID_REQUEST] * 2
    plan = plan_alter_configs(image, [wanted], broker=STATIC, validate_only=True)
    assert plan.result[0].error is ErrorCode.NONE
    assert plan.records == ()


def test_a_replacement_resets_unnamed_keys(image: MetadataImage) -> None:
    image, _ = _alter(image, TOPIC, "orders", ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))
    wanted = Replacement(TOPIC, "orders", [("segment.ms", "8"), ("flush.ms", "9")])
    plan = plan_replace_configs(image, [wanted], broker=STATIC)
    assert plan.result[0].error is ErrorCode.NONE
    image = image.apply_all(plan.records, image.end)
    assert _topic(image) == {"segment.ms": "8", "flush.ms": "9"}

    for bad in ([("segment.ms", None)], [("segment.ms", "1"), ("segment.ms", "2")]):
        refused = plan_replace_configs(image, [Replacement(TOPIC, "orders", bad)], broker=STATIC)
        assert refused.result[0].error is ErrorCode.INVALID_REQUEST
        assert not refused.records


@pytest.mark.parametrize("name", ["", "1"])
def test_a_broker_key_changes_from_the_value_in_force(image: MetadataImage, name: str) -> None:
    refused = ErrorCode.INVALID_REQUEST
    for value, code in (("100000", refused), ("2", None), ("4", None), ("1", refused)):
        image, error = _alter(image, BROKER, name, ("log.cleaner.threads", SET, value))
        assert error is (code or ErrorCode.NONE), value
    assert dict(image.configs(BROKER, name)) == {"log.cleaner.threads": "4"}
    image, error = _alter(image, BROKER, name, ("log.cleaner.threads", DELETE, None))
    assert error is refused
    image, error = _alter(image, BROKER, name, ("max.connections", SET, "0"))
    assert error is refused


def test_a_change_is_not_compared_with_an_overridden_default(image: MetadataImage) -> None:
    image, _ = _alter(image, BROKER, "1", ("log.cleaner.threads", SET, "2"))
    image, _ = _alter(image, BROKER, "1", ("log.cleaner.threads", SET, "4"))
    image, error = _alter(image, BROKER, "", ("log.cleaner.threads", SET, "100"))
    assert error is ErrorCode.NONE, "it is not in force, as in Apache Kafka"
    image, error = _alter(image, BROKER, "1", ("log.cleaner.threads", DELETE, None))
    assert error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", ["max.connections", "log.cleaner.threads"])
def test_a_default_of_0_is_refused_where_the_broker_has_a_value_too(
    image: MetadataImage, key: str
) -> None:
    image, error = _alter(image, BROKER, "1", (key, SET, "2"))
    assert error is ErrorCode.NONE
    image, error = _alter(image, BROKER, "", (key, SET, "0"))
    assert error is ErrorCode.INVALID_REQUEST, "the next broker would start with it"


def test_a_change_of_a_value_of_the_command_line_is_checked(image: MetadataImage) -> None:
    image = image.apply(ConfigRecord(BROKER, "1", "log.cleaner.threads", "50"))
    static = BrokerConfig({"log.cleaner.threads": "3"}).with_forced({"log.cleaner.threads"})
    for value, code in (("7", ErrorCode.INVALID_REQUEST), ("6", ErrorCode.NONE)):
        change = ConfigChange("log.cleaner.threads", SET, value)
        plan = plan_alter_configs(image, [ResourceChange(BROKER, "1", [change])], broker=static)
        assert plan.result[0].error is code


def test_stored_values_are_repaired_while_no_broker_runs(image: MetadataImage) -> None:
    for key, value in (("max.connections", "0"), ("log.segment.bytes", "1"), ("new.key", "1")):
        image = image.apply(ConfigRecord(BROKER, "1", key, value))
    values = {"max.connections": None, "log.segment.bytes": None, "new.key": None, "gone": None}
    plan = plan_stored_configs(image, BROKER, "1", values)
    image = image.apply_all(plan.records, image.end)
    assert dict(image.configs(BROKER, "1")) == {}
    plan = plan_stored_configs(image, BROKER, "", {"log.cleaner.threads": "9"})
    assert plan.records == (ConfigRecord(BROKER, "", "log.cleaner.threads", "9"),)


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (BROKER, "1", "max.connections", "many"),
        (BROKER, "1", "node.id", "7"),
        (BROKER, "1", "no.such.key", "7"),
        (TOPIC, "orders", "retention.ms", "soon"),
        (TOPIC, "none", "retention.ms", "5"),
    ],
)
def test_no_wrong_value_is_stored(
    image: MetadataImage, kind: ResourceType, name: str, key: str, value: str
) -> None:
    with pytest.raises(KafkaError):
        plan_stored_configs(image, kind, name, {key: value})


def _may(name: str, before: int | None, after: int | None) -> bool:
    common = {"log.cleaner.dedupe.buffer.size": str(1 << 40)}
    values = [
        common if value is None else {**common, name: str(value)} for value in (before, after)
    ]
    try:
        check_running_change(*map(BrokerConfig, values))
    except ConfigError as error:
        assert error.key == name
        assert "allowed: " in error.reason
        return False
    return True


@pytest.mark.parametrize("name", sorted(THREAD_COUNTS))
def test_a_thread_count_at_most_halves_or_doubles(name: str) -> None:
    assert [_may(name, 5, after) for after in (1, 2, 5, 10, 11, 100_000)] == [
        *(False, True, True, True, False, False)
    ]
    default = BrokerConfig({}).get_int(name)
    assert _may(name, None, default * 2)
    assert not _may(name, None, default * 2 + 1)
    assert not _may(name, default * 4, None), "back to the default in one step"


def test_every_thread_count_is_a_number_that_may_change() -> None:
    for name in THREAD_COUNTS:
        assert BROKER_CONFIGS[name].update_mode is UpdateMode.CLUSTER_WIDE
        assert BROKER_CONFIGS[name].type is ConfigType.INT


@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_a_running_broker_does_not_lock_out_its_clients(name: str) -> None:
    assert not _may(name, None, 0)
    assert not _may(name, 1, 0)
    assert _may(name, 1, 100_000)
    assert _may(name, 0, 0), "another key may change where a broker was started like that"
    assert _may(name, 0, 5)


def test_compaction_is_not_switched_off_by_its_threads() -> None:
    assert not _may("log.cleaner.threads", 1, 0)
    assert _may("log.cleaner.threads", 0, 1)
