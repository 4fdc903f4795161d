"""Records into and out of `lakelog produce` and `lakelog consume`: nothing is guessed or lost."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

import pytest

from broker_process import LAKELOG
from command_shell import Shell


@pytest.fixture
def shell(bootstrap: str) -> Shell:
    return Shell(bootstrap)


def records(shell: Shell, topic: str) -> list[dict[str, Any]]:
    printed = shell.out("consume", topic, "-o", "start", "-e", "-f", "jsonl")
    return [json.loads(line) for line in printed.splitlines()]


def content(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["key"], row["value"], row["value_encoding"], row["timestamp_ms"])


@pytest.mark.parametrize(("there", "here"), [(4, 1), (1, 4), (3, 2)])
def test_a_copy_between_topics_of_other_sizes(
    shell: Shell, unused: str, there: int, here: int
) -> None:
    """Run the pipe of docs/cli.md, with other names of topics."""
    source, copy = f"{unused}-a", f"{unused}-b"
    shell.out("topic", "create", source, "--partitions", str(there))
    shell.out("topic", "create", copy, "--partitions", str(here))
    lines = [b"%d|\xff value %d\x00\xfe" % (number % 20, number) for number in range(100)]
    shell.out("produce", source, "-K", "|", "-H", "h=1", given=b"\n".join(lines))
    tombstones = "".join(f'{{"key": "{number}", "value": null}}\n' for number in range(5))
    shell.out("produce", source, "--input-format", "jsonl", given=tombstones.encode())

    pipe = f"{LAKELOG} consume {source} -e -f jsonl | {LAKELOG} produce {copy} --input-format jsonl"
    subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipe], env=shell.environment, check=True, timeout=120
    )
    first, second = records(shell, source), records(shell, copy)
    assert len(second) == 105
    assert Counter(map(content, second)) == Counter(map(content, first))
    assert {row["partition"] for row in second} == set(range(here))
    of_key: dict[str, int] = {}
    for row in second:
        assert of_key.setdefault(row["key"], row["partition"]) == row["partition"]
    shell.out("produce", copy, "-K", "|", given=b"".join(b"%s|\n" % k.encode() for k in of_key))
    for row in records(shell, copy):
        assert row["partition"] == of_key[row["key"]], "where a producer of its own puts it"


def test_partitions_of_the_lines_on_request(shell: Shell, unused: str) -> None:
    shell.out("topic", "create", unused, "--partitions", "2")
    line = b'{"key": "%d", "value": "v", "partition": 1}\n'
    given = b"".join(line % number for number in range(20))
    words = ("produce", unused, "--input-format", "jsonl")
    shell.out(*words, "--keep-partitions", given=given)
    assert {row["partition"] for row in records(shell, unused)} == {1}
    given = b'{"value": "v", "partition": 7}\n'
    refused = shell.refusal(*words, "--keep-partitions", given=given)
    assert refused[:2] == (3, "LL0104")
    shell.out(*words, given=given)


def test_a_misspelt_field_writes_nothing(shell: Shell, topic: str) -> None:
    words = ("produce", topic, "--input-format", "jsonl")
    refused = shell.refusal(*words, given=b'{"key":"k","val":"x"}\n')
    assert refused[:2] == (1, "LL0605")
    assert "line 1: unknown field 'val'; did you mean 'value'?" in refused[2]
    refused = shell.refusal(*words, given=b'{"key":"k"}\n')
    assert "'value' is missing; \"value\": null writes a tombstone" in refused[2]
    refused = shell.refusal("produce", topic, "--key-field", "idd", given=b'{"id": 1}\n')
    assert "field 'idd' for the key is missing; did you mean 'id'?" in refused[2]
    assert records(shell, topic) == []
    shell.out(*words, given=b'{"key":"k","value":null}\n')
    assert [(row["key"], row["value"]) for row in records(shell, topic)] == [("k", None)]


def test_modifiers_of_a_format(shell: Shell, topic: str) -> None:
    shell.out("produce", topic, "-K", "|", "-H", "h=1", given=b"k|\xff\x00")
    words = ("consume", topic, "-o", "start", "-e", "-f")
    printed = shell.out(*words, r"%k{hex} %v{base64} %v{base64raw} %v{hex} %h{hex}\n")
    assert printed == b"6b /wA= /wA ff00 h=31\n"
    refused = shell.refusal(*words, "%v{hexx}")
    assert refused[:2] == (2, "LL0902")
    assert "unknown modifier '{hexx}'" in refused[2]


def test_an_offset_that_no_partition_has(shell: Shell, unused: str) -> None:
    shell.out("topic", "create", unused, "--partitions", "2")
    shell.out("produce", unused, "-p", "1", given=b"a\nb\nc\n")
    refused = shell.refusal("consume", unused, "-o", "4", "-n", "1")
    assert refused[:2] == (1, "LL0107")
    done = shell.run("consume", unused, "-o", "2", "-e")
    assert (done.returncode, done.stdout) == (0, b"c\n")
    assert done.stderr.decode() == f"{unused}-0 ends at 0; reading from there\n"
    shell.out("topic", "delete-records", unused, "--before", "2", "-p", "1", "-y")
    done = shell.run("consume", unused, "-o", "0", "-e")
    assert (done.returncode, done.stdout) == (0, b"c\n")
    assert done.stderr.decode() == f"{unused}-1 begins at 2; reading from there\n"


def test_a_topic_that_takes_large_records_just_gets_them(shell: Shell, unused: str) -> None:
    sizes = [3_000_000, 10, 2_999_000, 1_100_000, 20, 3_000_000]
    given = b"\n".join(b"%d" % (number % 10) * size for number, size in enumerate(sizes))
    shell.out("topic", "create", unused, "--config", "max.message.bytes=3000200")
    for words in ((), ("-z", "zstd"), ("-k", "key")):
        shell.out("produce", unused, *words, given=given)
    printed = shell.out("consume", unused, "-e").splitlines()
    assert printed == given.splitlines() * 3


def test_a_record_beyond_the_topics_limit_gets_advice_that_helps(shell: Shell, topic: str) -> None:
    given = b"x" * 2_000_000 + b"\n"
    refused = shell.refusal("produce", topic, given=given)
    assert refused[:2] == (1, "LL0601")
    assert "max.message.bytes is 1048588" in refused[2]
    advice = refused[2].rpartition("hint: ")[2].removesuffix(" to allow it")
    command = advice.removeprefix("run lakelog ").split()
    assert command[:3] == ["topic", "alter", topic]
    shell.out(*command)
    shell.out("produce", topic, given=given)
    done = shell.run("produce", topic, given=b"a\n" + b"x" * 3_000_000 + b"\nb\n")
    assert done.returncode == 7
    assert f"lakelog topic alter {topic} --config max.message.bytes=3000" in done.stderr.decode()
    shell.out("produce", topic, "-z", "gzip", given=b"x" * 3_000_000)
    assert len(shell.out("consume", topic, "-e").splitlines()) == 4


def test_a_topic_of_small_batches_gets_small_batches(shell: Shell, unused: str) -> None:
    """Of many records that fit one by one, none is refused for the company it is in."""
    shell.out("topic", "create", unused, "--config", "max.message.bytes=2000")
    given = b"".join(b"%0899d\n" % number for number in range(500))
    shell.out("produce", unused, given=given)
    shell.out("produce", unused, "-K", "|", "-H", "name=value", given=b"k|" + b"v" * 1800)
    assert shell.out("consume", unused, "-e") == given + b"v" * 1800 + b"\n"


def test_a_topic_is_still_created_with_its_first_record(shell: Shell, unused: str) -> None:
    """And a large record is not refused for the small one in front of it."""
    shell.out("produce", unused, given=b"y" * 100_000 + b"\n" + b"x" * 1_000_000)
    assert len(shell.out("consume", unused, "-e")) == 1_100_002
