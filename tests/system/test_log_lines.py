"""The lines in the log of a broker, as an operator reads them afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from broker_process import LAKELOG, BrokerProcess


class Log:
    """The lines of a broker's log, by event."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.lines = broker.untimed_lines()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def one(self, event: str) -> dict[str, Any]:
        (line,) = self.of(event)
        return line


def _run(broker: BrokerProcess, *words: str, given: bytes = b"") -> None:
    command = [LAKELOG, *words, "-b", broker.bootstrap]
    subprocess.run(command, input=given, capture_output=True, check=True)


def test_changes_of_topics_settings_and_records_are_logged_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        _run(broker, "topic", "create", "t", "-p", "2", "-c", "retention.ms=1000000")
        _run(broker, "topic", "alter", "t", "-p", "3", "-c", "retention.ms=2000000")
        _run(broker, "topic", "alter", "t", "--unset", "retention.ms")
        _run(broker, "config", "set", "--broker", "1", "log.cleaner.backoff.ms=20000")
        _run(broker, "produce", "t", "-p", "1", given=b"a\nb\nc\n")
        _run(broker, "topic", "delete-records", "t", "--before", "2", "-p", "1", "--yes")
        _run(broker, "topic", "delete-records", "t", "--before", "2", "-p", "1", "--yes")
        _run(broker, "topic", "delete", "t", "--yes")
        broker.stop()
        log = Log(broker)
        created = log.one("topic_created")
        assert (created["topic"], created["partitions"]) == ("t", 2)
        assert created["configs"] == {"retention.ms": "1000000"}
        grown = log.one("partitions_added")
        assert (grown["topic"], grown["partitions_before"], grown["partitions"]) == ("t", 2, 3)
        assert [
            (line["resource"], line["resource_name"], line["configs"])
            for line in log.of("config_changed")
        ] == [
            ("topic", "t", {"retention.ms": "2000000"}),
            ("topic", "t", {"retention.ms": None}),
            ("broker", "1", {"log.cleaner.backoff.ms": "20000"}),
        ]
        deleted = log.one("records_deleted")
        assert (deleted["topic"], deleted["partition"]) == ("t", 1)
        assert (deleted["log_start_offset_before"], deleted["log_start_offset"]) == (0, 2)
        gone = log.one("topic_deleted")
        assert (gone["topic"], gone["topic_id"]) == ("t", created["topic_id"])
        assert {line["level"] for line in log.lines} == {"info"}


def test_start_and_clean_stop_are_logged_once_and_repeat_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        _run(broker, "topic", "create", "t")
        broker.stop()
        broker.restart()
        broker.stop()
        log = Log(broker)
        assert [line["event"] for line in log.lines] == ["ready", "stopping", "stopped"]
        ready = log.one("ready")
        assert ready["listeners"] == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
        assert (ready["node_id"], ready["data"]) == (1, str(tmp_path / "data"))
        assert log.one("stopped")["duration_s"] >= 0


def test_an_open_listener_is_a_warning(tmp_path: Path) -> None:
    arguments = ("--insecure", "--http", "0.0.0.0:0")
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        line = Log(broker).one("listener_open")
        assert (line["level"], line["code"]) == ("warning", "LL0402")
        assert (line["host"], line["option"]) == ("0.0.0.0", "--http")
