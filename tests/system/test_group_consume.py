"""`lakelog consume -g` commits all printed records, across rebalances and any end of the run."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import pytest

from broker_process import LAKELOG
from clients.adapters.api import Consumer as AnyConsumer
from clients.adapters.confluent import ConfluentConsumer, ConfluentConsumerProtocol
from command_shell import Shell
from lakelog.base.errors import ErrorCode
from lakelog.client.admin import Admin
from lakelog.client.consumer import Consumer
from lakelog.client.errors import ClientError
from lakelog.protocol.groups import LeaveGroupRequest, MemberIdentity
from waiting import eventually
from wire_client import WireClient

_TIMEOUT_S = 120
_PARTITIONS = 4


class Member:
    """A member that is a process, and its output."""

    def __init__(self, shell: Shell, folder: Path, group: str, topic: str) -> None:
        self.out, self.err = folder / "out", folder / "err"
        words = [LAKELOG, "consume", topic, "-g", group, "-o", "start"]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(words, stdout=out, stderr=err, env=shell.environment)

    def lines(self) -> list[bytes]:
        return self.out.read_bytes().splitlines()

    def end(self, by: signal.Signals) -> None:
        self.process.send_signal(by)
        assert self.process.wait(_TIMEOUT_S) == 128 + by, self.err.read_text()


@pytest.fixture
def shell(bootstrap: str) -> Shell:
    return Shell(bootstrap)


@pytest.fixture
def wide(shell: Shell, unused: str) -> str:
    """A topic of several partitions."""
    shell.out("topic", "create", unused, "--partitions", str(_PARTITIONS))
    return unused


@contextmanager
def member(shell: Shell, folder: Path, topic: str) -> Iterator[Member]:
    folder.mkdir()
    made = Member(shell, folder, topic, topic)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def produce(shell: Shell, topic: str, numbers: range) -> list[bytes]:
    """One record a number, in every partition some."""
    values = [b"%d" % number for number in numbers]
    for partition in range(_PARTITIONS):
        given = b"\n".join(values[partition::_PARTITIONS])
        shell.out("produce", topic, "-p", str(partition), given=given)
    return sorted(values)


def assigned(shell: Shell, group: str) -> list[int]:
    """Partitions of each member; empty while the group is not there or not stable."""
    with Admin(shell.environment["LAKELOG_BROKERS"]) as admin:
        try:
            found = admin.groups.describe(group)
        except ClientError:
            return []
    return sorted(len(row.partitions) for row in found.members) if found.state == "Stable" else []


def test_nothing_is_printed_twice_when_a_member_joins_and_one_leaves(
    shell: Shell, wide: str, tmp_path: Path
) -> None:
    with member(shell, tmp_path / "a", wide) as first:
        eventually(lambda: assigned(shell, wide) == [4], what="the first member has all")
        expected = produce(shell, wide, range(200))
        eventually(lambda: len(first.lines()) >= 200)
        with member(shell, tmp_path / "b", wide) as second:
            eventually(lambda: assigned(shell, wide) == [2, 2], what="they share")
            expected += produce(shell, wide, range(200, 300))
            eventually(lambda: len(first.lines()) + len(second.lines()) >= 300)
            first.end(signal.SIGTERM)
            eventually(lambda: assigned(shell, wide) == [4], what="the second has all")
            expected += produce(shell, wide, range(300, 400))
            eventually(lambda: len(first.lines()) + len(second.lines()) >= 400)
            second.end(signal.SIGINT)
    assert sorted(first.lines() + second.lines()) == sorted(expected)
    assert first.err.read_text() == second.err.read_text() == ""
    assert shell.out("consume", wide, "-g", wide, "-e") == b""
    assert shell.one("group", "describe", wide)["lag"] == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_another_client_that_joins_begins_where_the_command_was(
    shell: Shell, wide: str, tmp_path: Path, bootstrap: str, protocol: str
) -> None:
    with member(shell, tmp_path / "a", wide) as first:
        eventually(lambda: assigned(shell, wide) == [4], what="the first member has all")
        produce(shell, wide, range(200))
        eventually(lambda: len(first.lines()) >= 200)
        with closing(_other(bootstrap, wide, protocol)) as other:
            received: list[bytes | None] = []

            def poll_until_they_share() -> bool:
                received.extend(record.value for record in other.poll(0.2))
                return assigned(shell, wide) == [2, 2]

            eventually(poll_until_they_share, what="they share")
            later = produce(shell, wide, range(200, 300))

            def poll_until_all() -> bool:
                received.extend(record.value for record in other.poll(0.2))
                return len(received) + len(first.lines()) >= 300

            eventually(poll_until_all)
            other.commit()
        first.end(signal.SIGTERM)
    assert len(first.lines()) == len(set(first.lines()))
    assert not set(received) & set(first.lines())
    assert set(received) <= set(later)
    assert first.err.read_text() == ""


def _other(bootstrap: str, topic: str, protocol: str) -> AnyConsumer:
    if protocol == "consumer":
        return ConfluentConsumerProtocol(bootstrap).consumer(topic, topic)
    settings = {
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": "range",
    }
    return ConfluentConsumer(bootstrap, topic, topic, settings)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_the_printed_records(
    shell: Shell, topic: str, tmp_path: Path, by: signal.Signals
) -> None:
    shell.out("produce", topic, given=b"0\n1\n2\n")
    with member(shell, tmp_path / "a", topic) as only:
        eventually(lambda: len(only.lines()) == 3)
        only.end(by)
    assert shell.out("consume", topic, "-g", topic, "-e") == b""
    assert shell.one("group", "describe", topic)["offsets"][0]["committed_offset"] == 3


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_join_that_other_members_hold_up(
    shell: Shell, topic: str, tmp_path: Path, bootstrap: str, by: signal.Signals
) -> None:
    """The other beats and does not poll: the group waits up to five minutes for it to rejoin."""

    def members() -> int:
        with Admin(bootstrap) as admin:
            found = admin.groups.describe(topic)
        return len(found.members) if found.state == "PreparingRebalance" else 0

    with Consumer(bootstrap, group=topic) as other:
        other.subscribe([topic])
        other.poll(0.1)
        with member(shell, tmp_path / "a", topic) as joining:
            eventually(lambda: members() == 2, what="the command joins")
            joining.end(by)
        eventually(lambda: members() == 1, what="it has left the group")


def test_a_reader_that_goes_away_leaves_the_rest_to_the_next(shell: Shell, topic: str) -> None:
    """A pipe holds 64 KiB: of a batch that did not fit, nothing is committed."""
    shell.out("produce", topic, given=b"".join(b"%0999d\n" % number for number in range(2000)))
    words = [LAKELOG, "consume", topic, "-g", topic, "-o", "start", "-e"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=shell.environment) as reader:
        stream: IO[bytes] | None = reader.stdout
        assert stream is not None
        assert int(stream.readline()) == 0
        stream.close()
        assert reader.wait(_TIMEOUT_S) == 0
    rest = [int(line) for line in shell.out("consume", topic, "-g", topic, "-e").splitlines()]
    assert rest == list(range(2000))


def test_a_count_commits_exactly_that(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, given=b"".join(b"%d\n" % number for number in range(100)))
    words = ("consume", topic, "-g", topic, "-o", "start", "-n", "30")
    printed = [shell.out(*words) for _ in range(3)]
    assert b"".join(printed) == b"".join(b"%d\n" % number for number in range(90))


def test_records_that_are_left_are_read_after_retention_has_passed_the_group(
    shell: Shell, topic: str
) -> None:
    """-o end counts where nothing is committed, and here something is."""
    shell.out("produce", topic, given=b"".join(b"%d\n" % number for number in range(10)))
    shell.out("consume", topic, "-g", topic, "-o", "start", "-n", "2")
    shell.out("topic", "delete-records", topic, "--before", "5", "--yes")
    done = shell.run("consume", topic, "-g", topic, "-o", "end", "-e")
    assert (done.returncode, done.stdout) == (0, b"5\n6\n7\n8\n9\n")
    assert f"{topic}-0: offset 2 is not in the log; reading continues at 5" in done.stderr.decode()


def test_a_restarted_member_does_not_skip_records_produced_meanwhile(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    """The end where it began is committed, although it printed nothing."""
    words = [LAKELOG, "consume", topic, "-g", topic]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, env=shell.environment) as first:
        eventually(lambda: assigned(shell, topic) == [1])
        first.send_signal(signal.SIGTERM)
        assert first.wait(_TIMEOUT_S) == 143
    shell.out("produce", topic, given=b"meanwhile\n")
    assert shell.out("consume", topic, "-g", topic, "-o", "end", "-e") == b"meanwhile\n"


def test_a_member_that_was_removed_cannot_commit_as_an_outsider(
    shell: Shell, topic: str, bootstrap: str, wire: WireClient
) -> None:
    shell.out("produce", topic, given=b"0\n1\n2\n")
    revoked: list[str] = []
    with Consumer(
        bootstrap, group=topic, auto_offset_reset="earliest", heartbeat_interval_ms=10_000_000
    ) as consumer:
        consumer.subscribe([topic], on_revoked=lambda: revoked.append(topic))
        eventually(consumer.poll)
        identity = MemberIdentity(member_id=consumer.membership.member_id)
        wire.call(LeaveGroupRequest(group_id=topic, members=[identity]), 4)
        for _ in range(2):
            with pytest.raises(ClientError) as caught:
                consumer.commit()
            assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert shell.one("group", "describe", topic)["offsets"] == []
        assert revoked == []
        eventually(consumer.poll)
        assert revoked == [topic]
        consumer.commit()
    assert shell.one("group", "describe", topic)["lag"] == 0
