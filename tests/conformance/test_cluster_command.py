"""`lakelog cluster` describes lakelog and Apache Kafka alike."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from broker_process import LAKELOG
from conformance.pair import Pair

_LIMIT_S = 120


def run(address: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAKELOG, "cluster", *words, "-b", address],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def document(address: str, command: str) -> Any:
    done = run(address, command, "-f", "jsonl")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listing(address: str, command: str) -> list[Any]:
    done = run(address, command, "-f", "json")
    assert done.returncode == 0, done.stderr
    rows: list[Any] = json.loads(done.stdout)
    return rows


@pytest.mark.parametrize("which", ["ours", "kafka"])
def test_a_cluster_of_one_broker_is_described(pair: Pair, which: str) -> None:
    address: str = getattr(pair, which)
    info = document(address, "info")
    assert (info["controller"], info["brokers"], info["fenced_brokers"]) == (1, 1, 0)
    assert info["controller_address"] == address
    assert (info["features"]["group.version"], info["features"]["transaction.version"]) == (1, 2)
    assert (info["metadata_store"] is None) == (which == "kafka")
    broker = document(address, "brokers")
    assert (broker["id"], broker["state"], broker["is_controller"]) == (1, "online", True)
    assert document(address, "health")["is_healthy"]
    levels = {row["feature"]: row for row in listing(address, "features")}
    assert levels["transaction.version"]["level"] == levels["transaction.version"]["highest"] == 2
    done = run(address, "features", "--downgrade", "transaction.version=1", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "Would change transaction.version from 2 to 1\n")
    for change in (("--upgrade", "transaction.version=1"), ("--upgrade", "transaction.version=99")):
        done = run(address, "features", *change, "-y")
        assert "error[LL0310]" in done.stderr, done.stderr
    done = run(address, "unregister", "77", "-y")
    assert (done.returncode, "error[LL0307]" in done.stderr) == (3, True)
