from __future__ import annotations

import pytest

from consumed_log import KEY, ConsumedLog, copied
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.records import group_progress
from lakelog.cli.records.group_progress import GroupProgress


def test_a_group_commits_only_the_printed_records() -> None:
    source = ConsumedLog(9)
    copied(source, count=3, has_group=True)
    assert source.committed == [{KEY: 3}]
    alone = ConsumedLog(9)
    copied(alone, count=3)
    assert alone.committed == []


def test_a_long_run_commits_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_progress, "_COMMIT_EVERY_S", 0.0)
    source = ConsumedLog(4)
    copied(source, ends={KEY: 4}, has_group=True)
    assert source.committed == [{KEY: 2}, {KEY: 4}]


def test_a_group_that_moved_on_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    source = ConsumedLog(2)
    source.error = KafkaError(ErrorCode.ILLEGAL_GENERATION)
    copied(source, count=2, has_group=True)
    assert "will read the last records" in capsys.readouterr().err
    source = ConsumedLog(2)
    source.error = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError):
        copied(source, count=2, has_group=True)


def test_printed_records_are_committed_before_their_partition_is_revoked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ConsumedLog(6)
    source.rebalance_at = 4
    assert copied(source, ends={KEY: 6}, has_group=True) == b"0\n1\n2\n3\n4\n5\n"
    assert source.committed == [{KEY: 4}, {KEY: 6}]
    assert capsys.readouterr().err == ""


def test_records_repeated_after_a_rebalance_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = ConsumedLog(6)
    source.rebalance_at = 4
    source.error = KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    printed = copied(source, ends={KEY: 6}, has_group=True)
    assert printed == b"0\n1\n2\n3\n0\n1\n2\n3\n4\n5\n"
    assert capsys.readouterr().err.splitlines() == [
        "the group has rebalanced: members will read the last records of orders-0 again",
        "orders-0: printed again after a rebalance: offsets 0 to 3",
        "the group has rebalanced: members will read the last records of orders-0 again",
    ]


def test_a_commit_refused_in_a_rebalance_is_made_up_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ConsumedLog(2)
    progress = GroupProgress(source, quiet=False)
    monkeypatch.setattr(group_progress, "_COMMIT_EVERY_S", 0.0)
    progress.commit_if_due()
    progress.wrote(source.poll(0, 2))
    source.error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    progress.commit_if_due()
    source.error = None
    progress.revoke()
    assert source.committed == [{KEY: 2}]
    assert capsys.readouterr().err == ""


def test_the_start_of_a_partition_is_committed_too() -> None:
    source = ConsumedLog(0)
    copied(source, has_group=True)
    assert source.committed == [{KEY: 0}]
