"""`lakelog table sync` as a user runs it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lakelog.client.admin import Admin, ResourceType
from lakelog.records.builder import BatchBuilder
from lakelog.records.crc import crc32c
from spark.scripts import counted, printed_scripts, run_script
from spark.table_sync import PLAIN, TIMEOUT_S, Sync
from spark.topics import MakeTopic, produce
from waiting import eventually
from wire_client import WireClient
from wire_client import produce as produce_batch

pytestmark = [pytest.mark.spark]


def test_a_table_is_synced_from_the_command_line(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    where = (topic, "--warehouse", str(tmp_path))

    status, out, err = Sync(bootstrap, *where).end()
    assert (status, err) == (0, f"{topic}: 6 records in the table\n")
    facts = dict(line.split("  ", 1) for line in out.splitlines()[:6] if "  " in line)
    assert Path(facts["metadata path"].strip().removeprefix("file://")).is_file()
    scripts = printed_scripts(out)
    assert list(scripts) == ["duckdb", "pyiceberg", "spark"]
    for reader in ("duckdb", "spark"):
        printed = run_script(scripts[reader], tmp_path)
        assert counted(printed) == {"0": "2", "1": "2", "2": "2"}, (reader, printed)
    assert f"{topic}" in run_script(scripts["pyiceberg"], tmp_path)

    produce(bootstrap, topic, range(6, 7))
    follow = Sync(bootstrap, *where, "--follow", "--every", "1s", "-f", "json")
    assert follow.first_note() == f"{topic}: 7 records in the table\n"
    follow.terminate()
    followed = follow.result()
    assert (followed["rows_added"], followed["rows_total"]) == (1, 7)
    assert followed["metadata_path"].removeprefix("file://") in followed["snippets"]["duckdb"]

    interrupted = Sync(bootstrap, *where, "--follow", "--every", "1s", "-f", "json")
    again = Sync(bootstrap, *where, "-f", "json").result()
    eventually(lambda: list(tmp_path.glob("checkpoints/*/*/metadata")), TIMEOUT_S)
    interrupted.interrupt()
    for nothing_new in (again, interrupted.result()):
        assert (nothing_new["rows_added"], nothing_new["rows_total"]) == (0, 7)
        assert nothing_new["snapshot_id"] == followed["snapshot_id"]


def test_a_signal_that_ends_java_as_well_ends_the_command_in_order(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """Java starts, so that the command talks to it next."""
    words = (make_topic(3), "--warehouse", str(tmp_path), "--follow", "--every", "1s", "-f", "json")
    follow = Sync(bootstrap, *words)
    eventually(follow.has_java, TIMEOUT_S)
    follow.terminate_group()
    status, out, err = follow.end()  # Py4J may log the end of its connection with a traceback
    assert status == 0, err
    assert json.loads(out)[0]["rows_total"] == 0


@pytest.mark.parametrize(
    ("words", "status", "code", "text"),
    [
        (("no-such-topic",), 3, "LL0102", "'no-such-topic' does not exist"),
        (("{topic}", "--warehouse", "ftp://lake/house"), 2, "LL0902", "a URI with one of s3://"),
        (
            ("{topic}", "--warehouse", "/proc"),
            2,
            "LL0902",
            "warehouse folder /proc",
        ),
        (("{topic}", "--warehouse", "{file}"), 2, "LL0902", "cannot write to the warehouse folder"),
        (("{topic}", "--every", "soon"), 2, "LL0902", "soon"),
    ],
)
def test_what_cannot_be_synced_is_refused(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    words: tuple[str, ...],
    status: int,
    code: str,
    text: str,
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = [word.format(topic=make_topic(), file=file) for word in words]

    ended, out, err = Sync(bootstrap, *given).end()

    assert (ended, out) == (status, "")
    assert err.startswith(f"error[{code}] ")
    assert text in err
    assert len(err.splitlines()) == 2


def test_a_record_that_cannot_be_a_row_is_named_in_one_line(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    """And with the option that the error names, it is one. A header key may be any bytes."""
    topic = make_topic(6, partitions=2)
    with Admin(bootstrap) as admin:
        changes = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        admin.configs.alter(ResourceType.TOPIC, topic, changes)
    batch = BatchBuilder()
    batch.append(2**62, b"k", b"late", [("k?y", b"x")])
    data = batch.build()
    data[data.index(b"k?y") + 1] = 0xFF
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    with WireClient(bootstrap) as wire:
        assert produce_batch(wire, topic, bytes(data), partition=1).error_code == 0
    words = (topic, "--warehouse", str(tmp_path), "-f", "json")

    status, out, err = Sync(bootstrap, *words).end()

    assert (status, out) == (1, "")
    [line] = [line for line in err.splitlines() if "@" in line]
    assert f"{topic}-1@3: the timestamp {2**62} (milliseconds)" in line
    assert "--null-timestamps" in err
    assert "Traceback" not in err
    assert "Py4J" not in err

    result = Sync(bootstrap, *words, "--null-timestamps", program=PLAIN).result()
    assert result["rows_added"] == 7
    table = StaticTable.from_metadata(result["metadata_path"])
    found = [row for row in table.scan().to_arrow().to_pylist() if row["value"] == b"late"]
    assert [(row["timestamp"], row["rawTimestamp"]) for row in found] == [(None, 2**62)]
    assert found[0]["headers"] == [{"key": "k\N{REPLACEMENT CHARACTER}y", "value": b"x"}]

    produce(bootstrap, topic, range(10, 12), partitions=2)
    assert Sync(bootstrap, *words, program=PLAIN).result()["rows_added"] == 2, (
        "the table fits without the option, too"
    )
