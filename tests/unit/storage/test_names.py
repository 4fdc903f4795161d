"""Names of files and directories, as Apache Kafka gives them."""

from __future__ import annotations

import pytest

from lakelog.storage.names import (
    DELETE_DIR,
    INDEX,
    dir_name,
    file_name,
    offset_of,
    parse_dir_name,
    retired_dir_name,
)


def test_a_file_is_named_for_its_offset() -> None:
    assert file_name(42, INDEX) == "00000000000000000042.index"
    assert offset_of("00000000000000000042.index") == 42
    assert offset_of("00000000000000000042.log.deleted") == 42
    assert offset_of("leader-epoch-checkpoint") is None
    assert offset_of("42.log") is None


@pytest.mark.parametrize("topic", ["a", "a-b", "a-1", "a.b_c"])
def test_a_directory_names_topic_and_partition(topic: str) -> None:
    assert parse_dir_name(dir_name(topic, 7)) == (topic, 7)


@pytest.mark.parametrize("name", ["a", "-1", "a-", "a-x", "a-1-delete", "a--"])
def test_other_directories_are_no_logs(name: str) -> None:
    assert parse_dir_name(name) is None


def test_the_name_of_a_deleted_log_is_cut_to_what_file_systems_allow() -> None:
    name = retired_dir_name("t" * 249, 12, "0" * 32, DELETE_DIR)
    assert len(name) == 255
    assert name.endswith(f"-12.{'0' * 32}-delete")
    assert parse_dir_name(name) is None
