"""Every command that the help, `lakelog dev` and docs/cli.md show, run as it stands there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from broker_process import LAKELOG, BrokerProcess
from clients.adapters.own import OwnAdmin
from command_shell import Shell, until_it_waits
from lakelog.client.producer import TransactionalProducer

_TIMEOUT_S = 120
_DOCS = Path(__file__).parents[2] / "docs" / "cli.md"
_ELSEWHERE = ("dev", "serve", "table", "debug", "metadata")
"""Nouns that need ports of their own, Spark or ZooKeeper, with tests that do run them."""
_WAITS = re.compile(r"lakelog consume \w+( -g \w+| \w+ '/.*/')?")
_STATUS = {
    "lakelog topic describe ordrs": 3,
    "lakelog group delete billing": 2,  # asks, and there is no terminal
    "lakelog txn abort orders 3": 3,  # none hangs
    "lakelog txn remove orders-by-day": 3,  # no sink has written
    "lakelog cluster unregister 3": 2,  # asks, and there is no terminal
}


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(LAKELOG).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"NO_COLOR": "1", "PATH": path} | more


def run(script: str, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=variables,
        timeout=_TIMEOUT_S,
        check=False,
    )


@contextmanager
def dev_broker(folder: Path) -> Iterator[tuple[str, str]]:
    """`lakelog dev`, its banner and its address."""
    words = [LAKELOG, "dev", "--port", "0"]
    with subprocess.Popen(
        words, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            banner = ""
            while "^C to stop" not in banner:
                line = process.stderr.readline()
                assert line, banner
                banner += line
            address = re.search(r"ready on (127\.0\.0\.1:\d+), data", banner)
            assert address is not None, banner
            yield banner, address[1]
            process.send_signal(signal.SIGINT)
            assert process.wait(_TIMEOUT_S) in (0, 130)
        finally:
            process.kill()


def commands(text: str) -> list[str]:
    return re.findall(r"^  ((?:echo .+ \| )?lakelog .+)$", text, re.MULTILINE)


def test_first_steps_of_the_help_and_of_dev(tmp_path: Path) -> None:
    shown = run("lakelog --help", tmp_path, environment()).stdout.partition("First steps")[2]
    steps = commands(shown)
    assert steps[0] == "lakelog dev"
    with dev_broker(tmp_path) as (banner, address):
        variables = environment(LAKELOG_BROKERS=address)
        done = [run(step, tmp_path, variables) for step in steps[1:]]
        assert [step.returncode for step in done] == [0] * len(done), done
        assert done[-1].stdout == "hello\n"

        shell = Shell(address)
        said, printed = until_it_waits(shell, f"{LAKELOG} consume demo", tmp_path)
        assert said.rstrip() == (
            "waiting for new records in 'demo' (3 partitions, from the end); "
            "use -o start to read from the beginning"
        )
        assert printed == b""
        said, printed = until_it_waits(shell, f"{LAKELOG} consume demo -o start", tmp_path)
        assert said.startswith("no more records in 'demo' (3 partitions); waiting for new ones")
        assert printed == b"hello\n"

        shell.out("topic", "delete", "demo", "--yes")
        steps = [step for step in commands(banner) if "table sync" not in step]
        done = [run(step, tmp_path, environment()) for step in steps]
        assert [step.returncode for step in done] == [0] * len(done), done
        assert done[-1].stdout == "hello\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory of a reader of the page, with the files of the examples."""
    (tmp_path / "access.log").write_text("GET /\n" * 100)
    lines = [json.dumps({"id": number, "region": "eu"}) for number in range(200)]
    (tmp_path / "orders.jsonl").write_text("\n".join(lines))
    with BrokerProcess(tmp_path / "data") as stopped:
        stopped.stop()
    return tmp_path


def test_the_examples_of_the_command_page(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    examples = re.findall(r"^\$ (.+)$", _DOCS.read_text(), re.MULTILINE)
    assert len(examples) > 40
    data = tmp_path_factory.mktemp("documented") / "log"
    with BrokerProcess(data, settings={"num.partitions": "4"}) as broker:
        prepare(broker.bootstrap)
        variables = environment(LAKELOG_BROKERS=broker.bootstrap)
        for example in examples:
            command = re.sub(r"\s+#.*", "", example)
            noun = re.search(r"lakelog (\w+)", command)
            assert noun is not None, command
            if noun[1] in _ELSEWHERE:
                continue
            if _WAITS.fullmatch(command):
                until_it_waits(Shell(broker.bootstrap), command.replace("lakelog", LAKELOG), folder)
                continue
            done = run(command, folder, variables)
            assert done.returncode == _STATUS.get(command, 0), f"{command}: {done.stderr}"
            assert "Traceback" not in done.stderr


def prepare(bootstrap: str) -> None:
    """Make the state that the page assumes: topics of its examples, a transactional id."""
    with closing(OwnAdmin(bootstrap)) as admin:
        for topic in ("demo", "payments", "invoices-2026"):
            admin.create_topic(topic, 3)
    with TransactionalProducer(bootstrap, "billing-1") as producer, producer.transaction():
        producer.send("demo", b"paid")
