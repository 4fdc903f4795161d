"""The table of newest records against a broker: the commands, and the example of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.expressions import EqualTo

from broker_process import BrokerProcess
from lakelog.cli.main import run
from lakelog.client.admin import Admin, ResourceType
from lakelog.client.producer import Producer
from lakelog.spark.archive.sync import sync_topic
from lakelog.tables.iceberg.address import TableAddress
from spark.archiver import Archiver
from spark.test_table_upkeep import Shell
from spark.topics import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
HEADING = "### The newest record of each key"


@pytest.fixture
def shell(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(bootstrap, capsys)


def send(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    with Producer(bootstrap) as producer:
        for key, value in records:
            producer.send(topic, value, key=key)


def test_a_table_of_newest_records_from_its_creation_to_its_end(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic()
    shell("create", topic, "--warehouse", str(tmp_path), "--latest")
    archiver = Archiver(bootstrap, topic, tmp_path)
    send(bootstrap, topic, ((b"k%d" % (n % 20), b"v%d" % n) for n in range(100)))
    archiver.run()
    assert "latest_table" not in shell("describe", topic)[0], "no refresh yet"
    (done,) = shell("refresh", topic)
    assert (done["records_read"], done["commits"]) == (100, 1)
    assert done["table"] == f"lakelog.{topic}_latest"
    send(bootstrap, topic, [(b"k3", None), (b"k4", b"new"), (None, b"without a key")])
    archiver.run()

    (shown,) = shell("describe", topic)
    assert (shown["latest_rows"], shown["latest_lag"], shown["latest_null_keys"]) == (20, 3, 0)
    (listed,) = [row for row in shell("list") if row["topic"] == topic]
    assert listed["latest"] == f"lakelog.{topic}_latest"
    shell("refresh", topic)
    (audited,) = shell("audit", topic)
    assert audited["latest_sound"] is True
    assert (audited["latest_rows"], audited["latest_keys"], audited["latest_null_keys"]) == (
        19,
        20,
        1,
    )
    address = TableAddress(archiver.place.catalog, ("lakelog", f"{topic}_latest"))
    found = address.load().scan(row_filter=EqualTo("key", b"k4")).to_arrow()
    assert found["value"].to_pylist() == [b"new"]

    (expired,) = shell("expire", topic, "--keep", "1", "--grace", "0s", "--older-than", "0s")
    assert expired["files_removed"] > 0
    shell("refresh", topic, "--rebuild")
    assert shell("audit", topic)[0]["latest_sound"] is True
    shell("drop", topic, "--purge", "--yes")
    assert not address.exists()
    assert not list(tmp_path.rglob("*.parquet"))


def test_what_stops_a_refresh_is_named(
    shell: Shell, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    assert "[LL0804]" in shell("refresh", topic, status=3)
    shell("create", topic, "--warehouse", str(tmp_path))
    Archiver(bootstrap, topic, tmp_path).run()
    assert "table.latest=true" in shell("refresh", topic, status=3)
    with Admin(bootstrap) as admin:
        keys = {"table.latest": "true", "table.latest.name": topic}
        admin.configs.alter(ResourceType.TOPIC, topic, keys)
    assert "is the archive of a topic" in shell("refresh", topic, status=1)


def test_the_example_of_the_page_runs(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a broker of its own; `sync` uses the session of the tests."""
    text = PAGE.read_text(encoding="utf-8")
    text = text[text.index(HEADING) : text.index("topic key", text.index(HEADING))]
    (console,) = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    warehouse = tmp_path / "warehouse"
    with BrokerProcess(tmp_path / "broker") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.topics.create("customers", partitions=2)
        states = ((b"c-%d" % (n % 20), b"state %d" % n) for n in range(60))
        send(broker.bootstrap, "customers", [*states, (b"c-3", None)])
        for line in console.splitlines():
            words = line.removeprefix("$ lakelog ").split()
            if words[1] == "sync":
                sync_topic(broker.bootstrap, words[2], str(warehouse), spark=spark)
                continue
            options = ["--warehouse", str(warehouse)] if words[1] == "create" else []
            assert run([*words, *options, "-b", broker.bootstrap]) == 0, capsys.readouterr().err
        exec(
            compile(example.replace("/data/warehouse", str(warehouse)), str(PAGE), "exec"),
            {"spark": spark},
        )
        broker.stop()
    shown = capsys.readouterr().out
    assert "19 customers" in shown
    assert "[b'state 57']" in shown
    assert "|c-17|state 57|" in shown
