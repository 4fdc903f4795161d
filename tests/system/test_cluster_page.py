"""The examples of docs/cluster.md: the commands run, and the files are accepted."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from broker_process import LAKELOG
from lakelog.cli.broker_start import (
    BrokerArguments,
    advertised,
    listen_address,
    load_config,
    parse_arguments,
)
from lakelog.cli.commands import serve
from system.test_dev_cluster import dev_cluster

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
_LIMIT_S = 180


def blocks(kind: str) -> list[str]:
    """Return the blocks of a kind in the page."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_laptop_example_run(tmp_path: Path) -> None:
    example = blocks("console")[0]
    first, *commands = re.findall(r"^\$ (.*)$", example, re.MULTILINE)
    assert first == "lakelog dev --brokers 3 &"
    with dev_cluster(tmp_path) as cluster:
        variables = {
            "LAKELOG_BROKERS": cluster.bootstrap,
            "PID": str(cluster.rows[cluster.controller][1]),
            "PATH": f"{Path(LAKELOG).parent}{os.pathsep}{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", "\n".join(commands)],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr + cluster.log
        assert "\n1000\n" in done.stdout
        assert f"pid {variables['PID']}) was killed by SIGKILL" in cluster.log


def test_the_command_of_workers_is_accepted() -> None:
    (command,) = re.findall(r"^\$ (.*)$", blocks("console")[1], re.MULTILINE)
    lakelog, noun, *options = command.split()
    assert (lakelog, noun) == ("lakelog", "serve")
    found = serve.app.commands[""].parse(options)
    assert found["arguments"].data == "data"


def test_the_settings_of_a_secured_ensemble_are_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, _ = blocks("properties")
    for name in ("zookeeper-digest", "zookeeper-ca.pem", "broker.pem"):
        (tmp_path / name).touch(0o600)
    file = tmp_path / "server.properties"
    file.write_text(text.replace("/etc/lakelog", str(tmp_path)))
    config = load_config(BrokerArguments(properties=str(file)))
    assert caplog.records == []
    assert config.get("zookeeper.set.acl") is True


def test_the_production_settings_are_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, text = blocks("properties")
    (unit,) = blocks("ini")
    command = re.search(r"^ExecStart=\S+ serve (.*?)\n(?! )", unit, re.MULTILINE | re.DOTALL)
    assert command is not None
    arguments = parse_arguments(command[1].replace("\\\n", " ").split())
    file = tmp_path / "server.properties"
    file.write_text(text)
    served = BrokerArguments(properties=str(file), insecure=arguments.insecure)
    config = load_config(served)
    assert caplog.records == []
    assert listen_address(served, config) == ""
    assert advertised(served, config) == {}
    assert (config.node_id, config.data_directory) == (1, "/var/lib/lakelog")
    assert str(config.get("lakelog.metadata.store")).startswith("zookeeper://10.0.0.1:2181,")
