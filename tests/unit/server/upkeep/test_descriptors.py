from __future__ import annotations

import pytest

from lakelog.server.upkeep.descriptors import LIMIT_MIN, LOG_FILES_MAX, RESERVE, Descriptors


@pytest.mark.parametrize("limit", [LIMIT_MIN, 100, 256, 1024, 4096, 20_000, 1 << 20])
def test_what_logs_and_connections_take_leaves_a_reserve(limit: int) -> None:
    parts = Descriptors.divided(limit)
    assert parts.log_files + parts.connections <= limit - min(RESERVE, limit // 2)
    assert 16 <= parts.log_files <= LOG_FILES_MAX
    assert parts.connections >= parts.log_files


def test_with_many_descriptors_connections_get_nearly_all() -> None:
    assert Descriptors.divided(1 << 20).connections > 1_000_000
