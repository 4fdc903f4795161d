"""The `lakelog` command as a user runs it: its output on each stream, and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import LAKELOG
from clients.adapters.confluent import ConfluentConsumerProtocol
from clients.reading import poll_count
from command_shell import Shell, on_a_terminal
from waiting import eventually

_TIMEOUT_S = 120


@pytest.fixture
def shell(bootstrap: str) -> Shell:
    return Shell(bootstrap)


def test_listing_topics_imports_nothing_that_it_does_not_need(shell: Shell, unused: str) -> None:
    """The time of this command is that of its imports: 150 ms is its budget."""
    shell.out("topic", "create", unused)
    code = (
        "import sys; from lakelog.cli.main import run; run(['topic', 'list']);"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=shell.environment, capture_output=True, check=True
    )
    assert unused in done.stdout.decode()
    heavy = {"asyncio", "ssl", "rich", "crc32c", "cramjam", "re2", "lakelog.records", "json"}
    heavy |= {"lakelog.server", "lakelog.client.consumer", "lakelog.client.admin.groups"}
    assert set(done.stderr.decode().split()) & heavy == set()


def test_the_log_of_a_command_says_what_its_client_does(shell: Shell, unused: str) -> None:
    quiet = shell.run("topic", "create", unused)
    assert b"INFO" not in quiet.stderr
    some = shell.run("topic", "list", "-v").stderr.decode()
    assert "INFO connected: Connected to " in some
    assert "DEBUG" not in some
    everything = shell.run("-vv", "topic", "describe", unused).stderr.decode()
    for words in ("request_sent: Metadata v", "response_received: DescribeConfigsResponse, "):
        assert f"DEBUG {words}" in everything
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = shell.run("produce", unused, "-b", closed, "--timeout", "1s", "-v", given=b"x\n")
    assert "INFO connect_failed: " in refused.stderr.decode()
    assert "INFO retrying: " in refused.stderr.decode()


def test_a_broker_that_does_not_answer_is_a_time_out(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        refused = shell.refusal("topic", "list", "-b", address, "--timeout", "300ms")
    assert refused[:2] == (5, "LL0302")
    assert f"{address}: no answer within 0.3 s\nhint: raise --timeout" in refused[2]


def test_settings_take_durations_and_sizes(shell: Shell, unused: str) -> None:
    shell.out("topic", "create", unused, "--config", "retention.ms=7d", "-c", "segment.bytes=1GiB")
    rows = shell.one("topic", "describe", unused)["configs"]
    values = {row["name"]: row["value"] for row in rows}
    assert values == {"retention.ms": "604800000", "segment.bytes": "1073741824"}
    table = shell.out("topic", "describe", unused).decode()
    assert re.search(r"^retention.ms +604800000 \(7d\) ", table, re.MULTILINE)
    assert re.search(r"^segment.bytes +1073741824 \(1GiB\) ", table, re.MULTILINE)
    shell.out("topic", "alter", unused, "--config", "retention.ms=1h30m")
    shell.out("config", "set", "--topic", unused, "max.message.bytes=2MiB")
    (row,) = shell.json("config", "get", "--topic", unused, "retention.ms")
    assert row["value"] == "5400000"
    shown = shell.out("config", "explain", "--topic", unused, "max.message.bytes").decode()
    assert "2097152 (2MiB)" in shown
    assert "1048588 (~1MiB)" in shown
    code, message = shell.refusal("topic", "alter", unused, "-c", "retention.ms=7x")[1:]
    assert (code, "retention.ms=7x: not a duration" in message) == ("LL0501", True)


@pytest.mark.parametrize("command", [("topic", "alter"), ("config", "set", "--topic")])
def test_a_key_that_does_not_exist_cannot_be_unset(
    shell: Shell, unused: str, command: tuple[str, ...]
) -> None:
    shell.out("topic", "create", unused)
    status, code, message = shell.refusal(*command, unused, "--unset", "nonsense.key")
    assert (status, code) == (2, "LL0501")
    assert f"topic '{unused}' has no setting 'nonsense.key'" in message
    assert f"lakelog config get --topic {unused} --all" in message
    message = shell.refusal(*command, unused, "--unset", "retention.mss")[2]
    assert "did you mean 'retention.ms'?" in message
    shell.out(*command, unused, "--unset", "retention.ms")


@pytest.mark.parametrize("words", [("get",), ("set", "log.cleaner.backoff.ms=20000")])
def test_a_broker_that_is_not_in_the_cluster_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    status, code, message = shell.refusal("config", *words, "--broker", "7")
    assert (status, code) == (2, "LL0902")
    assert message == "broker 7 is not in the cluster\nhint: its brokers are 1"


def test_a_topic_from_creation_to_deletion(shell: Shell, unused: str) -> None:
    shell.out("topic", "create", unused, "--partitions", "3", "--config", "retention.ms=1000000")
    status, code, message = shell.refusal("topic", "create", unused)
    assert (status, code) == (6, "LL0101")
    assert "--if-not-exists" in message
    again = shell.run("topic", "create", unused, "--if-not-exists")
    assert (again.returncode, again.stderr.decode()) == (0, f"Topic '{unused}' already exists\n")
    assert unused in [row["name"] for row in shell.json("topic", "list")]
    shell.out("topic", "alter", unused, "--partitions", "4", "--config", "max.message.bytes=2000")
    described = shell.one("topic", "describe", unused)
    assert len(described["partitions"]) == 4
    configs = {row["name"]: row["value"] for row in described["configs"]}
    assert configs["retention.ms"] == "1000000"
    assert configs["max.message.bytes"] == "2000"
    shell.out("topic", "alter", unused, "--unset", "retention.ms")
    described = shell.one("topic", "describe", unused)
    assert "retention.ms" not in [row["name"] for row in described["configs"]]
    assert shell.refusal("topic", "delete", unused)[:2] == (2, "LL0901")
    shell.out("topic", "delete", unused, "--yes")
    assert shell.refusal("topic", "describe", unused)[:2] == (3, "LL0102")


def test_a_misspelt_topic_is_suggested(shell: Shell, topic: str) -> None:
    done = shell.run("topic", "describe", topic[:-1])
    assert done.returncode == 3
    assert f"did you mean '{topic}'?" in done.stderr.decode()


def test_a_bad_setting_changes_nothing(shell: Shell, unused: str) -> None:
    refused = shell.refusal("topic", "create", unused, "--config", "retention.ms=soon")
    assert refused[:2] == (2, "LL0501")
    assert "retention.ms" in refused[2]
    assert shell.refusal("topic", "describe", unused)[:2] == (3, "LL0102")


def test_part_of_the_names_is_status_7(shell: Shell, topic: str) -> None:
    done = shell.run("topic", "describe", topic, "no-such-topic", "--format", "jsonl")
    assert done.returncode == 7
    assert json.loads(done.stdout)["name"] == topic
    assert b"error[LL0102]" in done.stderr


def test_one_name_that_fails_keeps_no_other_back(shell: Shell, topic: str) -> None:
    other = f"{topic}-other"
    created = shell.run("topic", "create", topic, other)
    assert (created.returncode, b"error[LL0101]" in created.stderr) == (7, True)
    assert other in [row["name"] for row in shell.json("topic", "list")]
    shell.out("group", "reset", other, "--topic", topic, "--to", "start", "--execute")
    deleted = shell.run("group", "delete", f"{other}-no", other, "--yes")
    assert (deleted.returncode, b"error[LL0201]" in deleted.stderr) == (7, True)
    assert other not in [row["group"] for row in shell.json("group", "list")]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_byte_for_byte(shell: Shell, topic: str, compression: str) -> None:
    lines = [b"plain", b"", b"\xff\x00 not text", b"crlf\r", b"x" * 200_000, b"no line feed"]
    data = b"\n".join(lines)
    shell.out("produce", topic, "--compression", compression, given=data)
    assert shell.out("consume", topic, "-o", "start", "-e") == data + b"\n"


def test_keys_headers_and_json_lines(shell: Shell, topic: str) -> None:
    words = ("produce", topic, "--key-separator", "|", "--header", "h=1")
    shell.out(*words, given=b"a|1\n\xfe|2\nkeyless\n")
    printed = shell.out("consume", topic, "-o", "start", "-e", "-f", r"%t/%p@%o %k=%v %h\n")
    name = topic.encode()
    assert printed.splitlines() == [
        name + b"/0@0 a=1 h=1",
        name + b"/0@1 \xfe=2 h=1",
        name + b"/0@2 =keyless h=1",
    ]
    objects = shell.out("consume", topic, "-o", "start", "-e", "-f", "json")
    copy = f"{topic}-copy"
    shell.out("topic", "create", copy)
    shell.out("produce", copy, "--input-format", "jsonl", given=objects)
    copied = shell.out("consume", copy, "-o", "start", "-e", "-f", "json")
    rows = [[json.loads(line) for line in text.splitlines()] for text in (objects, copied)]
    for row in [*rows[0], *rows[1]]:
        del row["topic"]
    assert rows[0] == rows[1]


def test_a_file_is_summed_up(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(5000)))
    summary = shell.one("produce", topic, str(file))
    assert (summary["records"], summary["failed"]) == (5000, 0)
    assert summary["partitions"] == [
        {"partition": 0, "records": 5000, "first_offset": 0, "last_offset": 4999}
    ]


def test_a_folder_is_not_a_file(shell: Shell, topic: str, tmp_path: Path) -> None:
    refused = shell.refusal("produce", topic, str(tmp_path))
    assert refused == (2, "LL0902", f"{tmp_path}: Is a directory\nhint: name a file")
    assert shell.refusal("produce", topic, str(tmp_path / "no"))[:2] == (3, "LL0903")


def test_a_record_that_is_too_large_does_not_stop_the_others(shell: Shell, topic: str) -> None:
    done = shell.run("produce", topic, given=b"a\n" + b"x" * 2_000_000 + b"\nb\n")
    assert done.returncode == 7
    assert b"error[LL0604]" in done.stderr
    assert shell.out("consume", topic, "-o", "start", "-e") == b"a\nb\n"


def test_a_bad_json_line_is_named(shell: Shell, topic: str) -> None:
    given = b'{"value": "kept"}\nnonsense\n'
    refused = shell.refusal("produce", topic, "--input-format", "jsonl", given=given)
    assert refused[:2] == (1, "LL0605")
    wanted = "line 2: not JSON: Expecting value at character 1; 1 record before it written"
    assert refused[2].startswith(wanted)
    given = b'{"value": "%s"}\nnonsense\n' % (b"x" * 2_000_000)
    refused = shell.refusal("produce", topic, "--input-format", "jsonl", given=given)
    assert "; 1 record before it not written: 1 record for " in refused[2]
    assert shell.out("consume", topic, "-o", "start", "-e") == b"kept\n"


def test_where_consuming_begins(shell: Shell, topic: str) -> None:
    before = int(time.time() * 1000)
    shell.out("produce", topic, given=b"0\n1\n2\n3\n4\n")
    assert shell.out("consume", topic, "-o", "3", "-e") == b"3\n4\n"
    assert shell.out("consume", topic, "-o", "-1", "-e") == b"4\n"
    assert shell.out("consume", topic, "-o", "+4", "-e") == b"4\n"
    assert shell.out("consume", topic, "-o", f"@{before}", "-n", "2") == b"0\n1\n"
    assert shell.out("consume", topic, "-o", "@2099-01-01", "-e") == b""
    assert shell.out("consume", topic, "-o", "end", "-e") == b""
    assert shell.out("consume", topic, "-e") == b"0\n1\n2\n3\n4\n"
    assert shell.refusal("consume", topic, "-p", "7")[:2] == (3, "LL0104")


def test_a_group_continues_at_its_committed_offset(shell: Shell, topic: str) -> None:
    group = topic
    shell.out("produce", topic, given=b"0\n1\n2\n3\n4\n")
    words = ("consume", topic, "-g", group, "-o", "start")
    assert shell.out(*words, "-n", "2") == b"0\n1\n"
    offsets = shell.one("group", "describe", group)["offsets"]
    assert [(row["committed_offset"], row["lag"]) for row in offsets] == [(2, 3)]
    assert 0 < offsets[0]["lag_seconds"] < 3600
    assert shell.out(*words, "-e") == b"2\n3\n4\n"
    assert group in [row["group"] for row in shell.json("group", "list")]

    refused = shell.refusal("group", "reset", group, "--to-offset", "77", "--execute")
    assert refused[:2] == (1, "LL0107")
    assert refused[2].startswith(f"{topic}-0 has offsets 0 to 5 (exclusive), not 77\n")
    assert shell.refusal("group", "reset", group, "--to", "+77")[:2] == (1, "LL0107")
    assert shell.one("group", "describe", group)["lag"] == 0
    cut = shell.run("group", "reset", group, "--shift-by", "-77")
    assert f"{topic}-0: the shift ends at the limit of the log, 0" in cut.stderr.decode()
    planned = shell.one("group", "reset", group, "--to", "+1")
    assert (planned["executed"], planned["plan"][0]["change"]) == (False, -4)
    assert shell.out(*words, "-e") == b""
    shell.out("group", "reset", group, "--to-offset", "1", "--execute")
    assert shell.out(*words, "-e") == b"1\n2\n3\n4\n"
    assert shell.one("group", "describe", group)["lag_seconds"] == 0

    assert shell.refusal("group", "delete", group)[:2] == (2, "LL0901")
    shell.out("group", "delete", group, "--yes")
    assert group not in [row["group"] for row in shell.json("group", "list")]
    assert shell.refusal("group", "delete", group, "--yes")[:2] == (3, "LL0201")


def test_a_group_of_the_consumer_protocol(shell: Shell, topic: str, bootstrap: str) -> None:
    group = topic
    shell.out("produce", topic, given=b"0\n1\n2\n")
    with closing(ConfluentConsumerProtocol(bootstrap).consumer(group, topic)) as consumer:
        assert len(poll_count(consumer, 3)) == 3
        consumer.commit()
        described = shell.one("group", "describe", group)
        assert (described["type"], described["protocol"]) == ("consumer", "uniform")
        assert (described["state"], described["lag"]) == ("Stable", 0)
        (member,) = described["members"]
        assert (member["protocol"], member["epoch"]) == ("consumer", described["epoch"])
        assert member["partitions"] == [f"{topic}-0"]
        assert shell.refusal("group", "delete", group, "--yes")[:2] == (6, "LL0202")
        listed = shell.json("group", "list")
        assert (group, "consumer") in [(row["group"], row["type"]) for row in listed]


def test_a_group_with_members_cannot_be_moved(shell: Shell, topic: str) -> None:
    group = topic
    words = [LAKELOG, "consume", topic, "-g", group]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, env=shell.environment) as member:
        try:
            eventually(lambda: _is_stable(shell, group), what="the group is stable")
            refused = shell.refusal(
                "group", "reset", group, "-t", topic, "--to-latest", "--execute"
            )
            assert refused[:2] == (6, "LL0202")
            member.send_signal(signal.SIGINT)
            assert member.wait(_TIMEOUT_S) == 130
        finally:
            member.kill()
    assert shell.one("group", "describe", group)["members"] == []


def _is_stable(shell: Shell, group: str) -> bool:
    done = shell.run("group", "describe", group, "--format", "json")
    return done.returncode == 0 and json.loads(done.stdout)[0]["state"] == "Stable"


def test_an_unknown_group(shell: Shell, topic: str) -> None:
    group = topic
    assert shell.refusal("group", "describe", group)[:2] == (3, "LL0201")
    words = ("group", "reset", group, "--to", "start")
    refused = shell.refusal(*words)
    assert (refused[:2], f"group '{group}' does not exist" in refused[2]) == ((3, "LL0201"), True)

    planned = shell.run(*words, "--topic", topic)
    assert planned.returncode == 0
    assert f"group '{group}' does not exist yet" in planned.stderr.decode()
    assert shell.refusal("group", "describe", group)[:2] == (3, "LL0201")
    done = shell.run(*words, "--topic", topic, "--execute")
    assert f"group '{group}' did not exist before" in done.stderr.decode()
    assert shell.one("group", "describe", group)["offsets"][0]["committed_offset"] == 0
    near = shell.run("group", "reset", f"{group}x", "--to", "start")
    assert f"did you mean '{group}'?" in near.stderr.decode()


_COLOR = re.compile(r"\x1b\[[\d;]*3\dm")


def test_a_bar_and_colors_are_for_terminals_only(shell: Shell, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "line"
    file.write_bytes(b"line\n")
    produce, mistake = ("produce", topic, str(file)), ("topic", "describe", f"{topic}-no")

    piped = shell.run(*produce).stderr.decode()
    assert re.fullmatch(rf"1 record, 4 B to '{topic}' in [\d.]+ s \([\d,]+/s\)\n", piped)
    shown = on_a_terminal(shell, *produce)
    assert "━" in shown
    assert _COLOR.search(shown)
    assert _COLOR.search(on_a_terminal(shell, *mistake))

    shown = on_a_terminal(shell, *produce, NO_COLOR="1")
    assert "━" in shown
    assert not _COLOR.search(shown)
    assert "\x1b" not in on_a_terminal(shell, *mistake, NO_COLOR="1")
    assert on_a_terminal(shell, *produce, "--quiet") == ""


def test_a_reader_that_goes_away_is_a_clean_end(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, given=b"line\n" * 50_000)
    script = f"set -o pipefail; {LAKELOG} consume {topic} -o start -e | head -1"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, env=shell.environment, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"line\n", b"")


def test_an_unreachable_broker_is_an_error_with_a_hint() -> None:
    nobody = Shell("127.0.0.1:1")
    refused = nobody.refusal("topic", "list", "--timeout", "100ms")
    assert refused[:2] == (5, "LL0301")
    assert "127.0.0.1:1" in refused[2]
    assert nobody.refusal("produce", "t", "--timeout", "100ms", given=b"x")[:2] == (5, "LL0301")
    assert nobody.refusal("consume", "t", "--timeout", "100ms")[:2] == (5, "LL0301")


def test_dev_says_what_to_do_next(tmp_path: Path) -> None:
    environment = os.environ | {"NO_COLOR": "1"}
    with subprocess.Popen(
        [LAKELOG, "dev", "--port", "0", "--partitions", "2"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            said = ""
            while "^C to stop" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            found = re.search(r"-b (127\.0\.0\.1:\d+)", said)
            assert found is not None, said
            shell = Shell(found[1])
            shell.out("produce", "made-on-the-way", given=b"hello\n")
            assert len(shell.one("topic", "describe", "made-on-the-way")["partitions"]) == 2
            process.send_signal(signal.SIGTERM)
            assert process.wait(_TIMEOUT_S) == 0
        finally:
            process.kill()
    assert (tmp_path / ".lakelog" / "meta.properties").exists()


def test_settings_are_shown_changed_and_explained(shell: Shell, unused: str) -> None:
    of = ("--topic", unused)
    shell.out("topic", "create", unused)
    assert shell.json("config", "get", *of) == []
    shell.out("config", "set", "retention.ms=9000", "segment.ms=8000", *of)
    shown = {row["name"]: (row["value"], row["source"]) for row in shell.json("config", "get", *of)}
    assert shown == {"retention.ms": ("9000", "topic"), "segment.ms": ("8000", "topic")}

    planned = shell.one("config", "set", "flush.ms=1", "--dry-run", *of)
    assert planned["changes"] == [{"name": "flush.ms", "value": "1"}]
    assert (planned["resource_type"], planned["resource"]) == ("topic", unused)
    assert planned["executed"] is False
    refused = shell.refusal("config", "get", "--topic", unused[:-1])
    assert (refused[:2], f"did you mean '{unused}'?" in refused[2]) == ((3, "LL0102"), True)
    refused = shell.refusal("config", "set", "retention.millis=1", *of)
    assert (refused[:2], "did you mean 'retention.ms'?" in refused[2]) == ((2, "LL0501"), True)
    shell.out("config", "set", "--unset", "segment.ms", *of)
    assert [row["name"] for row in shell.json("config", "get", *of)] == ["retention.ms"]
    explained = shell.one("config", "explain", "retention.ms", *of)
    assert explained["type"] == "long"
    assert (explained["chain"][0]["in_force"], explained["chain"][0]["source"]) == (True, "topic")
    table = shell.out("config", "explain", "segment.bytes", *of).decode()
    assert re.search(r"yes +1073741824 \(1GiB\) +default +log\.segment\.bytes", table)


def test_settings_of_the_broker(shell: Shell) -> None:
    (row,) = shell.json("config", "get", "group.initial.rebalance.delay.ms")
    assert (row["value"], row["source"], row["is_read_only"]) == ("0", "static-broker", True)
    of_all = ("--all-brokers",)
    shell.out("config", "set", "background.threads=11", *of_all)
    assert [row["name"] for row in shell.json("config", "get", *of_all)] == ["background.threads"]
    (row,) = shell.json("config", "get", "background.threads")
    assert (row["value"], row["source"]) == ("11", "dynamic-default-broker")
    shell.out("config", "set", "--unset", "background.threads", *of_all)

    refused = shell.refusal("config", "set", "node.id=7")
    assert (refused[:2], "when a broker starts" in refused[2]) == ((2, "LL0501"), True)
    refused = shell.refusal("config", "set", "retention.ms=7")
    hint = "use --topic NAME, or log.retention.ms for all topics"
    assert (refused[:2], hint in refused[2]) == ((2, "LL0501"), True)
    (row,) = shell.json("config", "get", "log.dirs")
    assert Path(row["value"]).is_absolute()
    assert row["source"] == "static-broker"
    status, code, message = shell.refusal("config", "explain", "retention.millis")
    assert (status, code) == (2, "LL0501")
    assert "retention.millis" in message
