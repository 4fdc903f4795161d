from __future__ import annotations

import pytest

from lakelog.base.config.log_config import LogConfig
from lakelog.replica.archive_floor import archive_floor


@pytest.mark.parametrize(
    ("overrides", "floor"),
    [
        ({}, None),
        ({"table.archived.offsets": "0:7"}, None),
        ({"table.enable": "true"}, 0),
        ({"table.enable": "true", "table.archived.offsets": "0:7,1:9"}, 9),
        ({"table.enable": "true", "table.archived.offsets": "0:7"}, 0),
    ],
)
def test_a_partition_without_archived_offsets_keeps_everything(
    overrides: dict[str, str], floor: int | None
) -> None:
    assert archive_floor(LogConfig.from_values(overrides), 1) == floor
