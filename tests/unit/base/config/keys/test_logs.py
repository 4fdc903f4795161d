"""Broker keys of compaction that depend on one another."""

from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError, UpdateMode
from lakelog.base.config.keys.logs import CLEANER_KEYS, check_cleaner_keys

MIB = 1 << 20


@pytest.mark.parametrize(("threads", "buffer"), [(1, MIB + 1), (0, MIB + 1), (4, 4 * (MIB + 1))])
def test_more_than_1_mib_for_each_helper_is_enough(threads: int, buffer: int) -> None:
    settings = {
        "log.cleaner.threads": str(threads),
        "log.cleaner.dedupe.buffer.size": str(buffer),
    }
    check_cleaner_keys(BrokerConfig(settings).get_int)


@pytest.mark.parametrize(("threads", "buffer"), [(1, MIB), (0, MIB), (4, 4 * MIB + 3)])
def test_too_many_helpers_for_the_buffer_are_rejected(threads: int, buffer: int) -> None:
    values = {"log.cleaner.threads": threads, "log.cleaner.dedupe.buffer.size": buffer}
    with pytest.raises(ConfigError, match=rf"={buffer}: .*log\.cleaner\.threads={threads}"):
        check_cleaner_keys(values.__getitem__)


def test_all_but_the_switch_change_while_the_broker_runs() -> None:
    """KIP-226; compaction itself is switched on or off at a start."""
    fixed = {key.name for key in CLEANER_KEYS if key.update_mode is UpdateMode.READ_ONLY}
    assert fixed == {"log.cleaner.enable"}
