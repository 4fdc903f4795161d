from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigType
from lakelog.base.config.log_config import TOPIC_CONFIGS
from lakelog.base.config.quantities import duration_ns, human_value, plain_value, size_bytes

KEYS = {**BROKER_CONFIGS, **TOPIC_CONFIGS}
NUMBERS = (ConfigType.INT, ConfigType.LONG)


@pytest.mark.parametrize(
    ("key", "text", "plain"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1h30m", "5400000"),
        ("retention.ms", " 1.5h ", "5400000"),
        ("retention.ms", "2w", "1209600000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "1000", "1000"),
        ("log.retention.hours", "7d", "168"),
        ("log.retention.minutes", "1h", "60"),
        ("transaction.max.timeout.ms", "15m", "900000"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1GB", "1000000000"),
        ("segment.bytes", "1.5KiB", "1536"),
        ("segment.bytes", "77B", "77"),
        ("log.cleaner.io.max.bytes.per.second", "10MiB", "10485760"),
        ("log.cleaner.dedupe.buffer.size", "128MiB", "134217728"),
        ("cleanup.policy", "compact", "compact"),
        ("num.partitions", "7d", "7d"),
    ],
)
def test_what_people_write_becomes_what_kafka_reads(key: str, text: str, plain: str) -> None:
    assert plain_value(key, text) == plain


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("retention.ms", "7 d", "not a duration; write"),
        ("retention.ms", "1GiB", "not a duration; write"),
        ("retention.ms", "7D", "not a duration"),
        ("retention.ms", "0.5us", "not a duration"),
        ("retention.ms", "1.2345678ms", "not a whole number of milliseconds|too many decimals"),
        ("log.retention.hours", "90m", "not a whole number of hours"),
        ("segment.bytes", "1G", "not a size; write"),
        ("segment.bytes", "7d", "not a size; write"),
        ("segment.bytes", "0.3KiB", "too many decimals"),
        ("segment.bytes", "x", "not a size"),
    ],
)
def test_what_cannot_be_meant_is_refused(key: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plain_value(key, text)


@pytest.mark.parametrize(
    ("key", "text", "human"),
    [
        ("retention.ms", "604800000", "7d"),
        ("retention.ms", "5400000", "1h30m"),
        ("retention.ms", "86399999", "~23h59m"),
        ("retention.ms", "500", None),
        ("retention.ms", "-1", None),
        ("retention.ms", "9223372036854775807", None),
        ("log.retention.hours", "168", "7d"),
        ("log.retention.hours", "1", None),
        ("segment.bytes", "1073741824", "1GiB"),
        ("max.message.bytes", "1048588", "~1MiB"),
        ("segment.bytes", "1610612736", "1.5GiB"),
        ("segment.bytes", "1000", None),
        ("retention.bytes", "-1", None),
        ("retention.bytes", "9223372036854775807", None),
        ("cleanup.policy", "delete", None),
        ("num.partitions", "1000000", None),
        ("retention.ms", None, None),
    ],
)
def test_the_text_of_a_number_in_tables(key: str, text: str | None, human: str | None) -> None:
    assert human_value(key, text) == human


@given(st.integers(0, 2**63 - 1), st.sampled_from(["retention.ms", "segment.bytes", "a.hours"]))
def test_an_exact_text_can_be_parsed(number: int, key: str) -> None:
    human = human_value(key, str(number))
    if human is not None and not human.startswith("~"):
        assert plain_value(key, human) == str(number)


@given(st.text())
def test_any_text_is_a_value_or_a_refusal(text: str) -> None:
    for parse in (duration_ns, size_bytes):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert str(error)


def test_every_key_that_counts_time_or_bytes_takes_its_units() -> None:
    """The words of its description name the unit."""
    for name, key in KEYS.items():
        if key.type not in NUMBERS:
            continue
        words = name.split(".")
        if words[-1] in ("ms", "hours", "minutes", "seconds", "secs", "millis"):
            assert plain_value(name, "10h" if words[-1] != "ms" else "10s").isdecimal(), name
        elif "bytes" in words or words[-2:] in (["buffer", "size"], ["receive", "size"]):
            assert plain_value(name, "64KiB") == "65536", name
        else:
            assert plain_value(name, "10s") == "10s", name
