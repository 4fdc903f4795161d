"""Values that a broker has stored and cannot be reached with: the command line gets past them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from broker_process import LAKELOG, BrokerProcess
from lakelog.client.admin import Admin, ResourceType
from wire_client import WireClient


def _config(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAKELOG, "config", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
        check=False,
        timeout=120,
    )


def _stored(data: Path, *words: str) -> Any:
    done = _config("get", "--offline", str(data), "-f", "json", *words)
    assert done.returncode == 0, done.stderr
    return [(row["resource"], row["name"], row["value"]) for row in json.loads(done.stdout)]


def _in_force(bootstrap: str, key: str) -> tuple[str | None, str]:
    with Admin(bootstrap) as admin:
        entry = admin.configs.describe(ResourceType.BROKER, "1")[key]
    return entry.value, entry.source.name


def test_a_setting_that_makes_the_broker_unreachable_is_repaired(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        refused = _config("set", "--offline", str(broker.data), "--broker", "1", "--unset", "x")
        assert (refused.returncode, "LL0701" in refused.stderr) == (6, True), refused.stderr
        broker.stop()
        wrong = _config("set", "--offline", str(broker.data), "--all-brokers", "max.connections=x")
        assert "LL0501" in wrong.stderr
        unnamed = _config("set", "--offline", str(broker.data), "max.connections=0")
        assert "--all-brokers" in unnamed.stderr
        done = _config("set", "--offline", str(broker.data), "--broker", "1", "max.connections=0")
        assert done.returncode == 0, done.stderr
        assert _stored(broker.data) == [("1", "max.connections", "0")]

        broker.start()
        with WireClient(broker.bootstrap) as client:
            assert client.is_closed_by_broker(), "a stored value is in force after a restart"
        broker.stop()

        broker.settings["max.connections"] = "50"
        broker.start()
        assert "max.connections=50 of the command line overrules the stored value 0" in broker.log()
        assert "config set --broker 1 --unset max.connections" in broker.log()
        assert _in_force(broker.bootstrap, "max.connections") == ("50", "STATIC_BROKER")
        with Admin(broker.bootstrap) as admin:
            admin.configs.alter(ResourceType.BROKER, "1", {"max.connections": "60"})
        assert _in_force(broker.bootstrap, "max.connections") == ("60", "DYNAMIC_BROKER")
        broker.stop()

        done = _config(
            "set", "--offline", str(broker.data), "--broker", "1", "--unset", "max.connections"
        )
        assert done.returncode == 0, done.stderr
        assert _stored(broker.data, "--broker", "1") == []
        del broker.settings["max.connections"]
        broker.start()
        assert _in_force(broker.bootstrap, "max.connections") == ("10000", "DEFAULT")


def test_a_folder_that_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    done = _config("get", "--offline", str(tmp_path))
    assert (done.returncode, "LL0703" in done.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []
