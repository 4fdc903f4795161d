"""A broker that was unregistered while it could not notice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from broker_process import LAKELOG, BrokerProcess
from waiting import eventually


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [LAKELOG, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def _states(broker: BrokerProcess) -> dict[int, str]:
    rows = json.loads(_run("cluster", "brokers", "-b", broker.bootstrap, "-f", "json") or "[]")
    return {row["id"]: row["state"] for row in rows}


def test_a_paused_broker_that_is_unregistered_stops_when_it_wakes_up(tmp_path: Path) -> None:
    def member(number: int) -> BrokerProcess:
        return BrokerProcess(
            tmp_path / f"data{number}",
            arguments=(
                *("--node-id", str(number), "--metadata", f"sqlite:{tmp_path / 'cluster.db'}"),
                *("--set", "broker.session.timeout.ms=6000"),
            ),
        )

    with member(1) as first, member(2) as second:
        eventually(lambda: _states(first) == {1: "online", 2: "online"})
        second.pause()
        try:
            eventually(lambda: _states(first).get(2) == "fenced")
            eventually(
                lambda: (
                    _run("cluster", "unregister", "2", "-y", "-b", first.bootstrap) is not None
                    and 2 not in _states(first)
                )
            )
        finally:
            second.resume()
        assert second.wait() == 6
        assert "error[LL0710] broker 2 was unregistered while it ran" in second.log()
        second.restart()
        eventually(lambda: _states(first) == {1: "online", 2: "online"})
