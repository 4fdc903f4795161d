from __future__ import annotations

import pytest

from lakelog.base.config.key import ConfigError
from lakelog.base.config.log_config import LogConfig, validate_topic_configs


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table.name", "a/b"),
        ("table.archived.offsets", "0:1,1"),
        ("table.archived.offsets", "0:-1"),
        ("table.enable", "yes"),
        ("table.schema.registry.url", "registry:8081"),
        ("table.schema.registry.url", "http://user:secret@registry"),
    ],
)
def test_a_value_that_no_table_can_use_is_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        validate_topic_configs({name: text})


def test_the_archived_offsets_are_a_list_of_partitions() -> None:
    found = LogConfig.from_values({"table.enable": "true", "table.archived.offsets": "0:12, 1:0"})
    assert found.table_enable
    assert found.table_archived_offsets == ("0:12", "1:0")
