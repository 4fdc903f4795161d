from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS, BrokerConfig
from lakelog.base.config.key import ConfigError, ConfigType, UpdateMode
from lakelog.base.config.running_changes import THREAD_COUNTS, check_running_change


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
