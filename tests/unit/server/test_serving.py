"""A broker in this process, from its start to a signal."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.server.options import ReadyInfo, ServeOptions
from lakelog.server.serving import LIMIT_MIN, LOG_FILES_MAX, RESERVE, Descriptors, serve


@pytest.mark.long
def test_the_collector_skips_objects_of_the_start(tmp_path: Path) -> None:
    frozen: list[int] = []

    def ready(info: ReadyInfo) -> None:
        frozen.append(gc.get_freeze_count())
        os.kill(os.getpid(), signal.SIGTERM)

    gc.unfreeze()
    try:
        options = ServeOptions(tmp_path, BrokerConfig({}), "127.0.0.1:0", ready=ready)
        assert serve(options) == 0
        assert frozen[0] > 10_000
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as the tests before found it


@pytest.mark.parametrize("limit", [LIMIT_MIN, 100, 256, 1024, 4096, 20_000, 1 << 20])
def test_what_logs_and_connections_take_leaves_a_reserve(limit: int) -> None:
    parts = Descriptors.divided(limit)
    assert parts.log_files + parts.connections <= limit - min(RESERVE, limit // 2)
    assert 16 <= parts.log_files <= LOG_FILES_MAX
    assert parts.connections >= parts.log_files


def test_with_many_descriptors_connections_get_nearly_all() -> None:
    assert Descriptors.divided(1 << 20).connections > 1_000_000
