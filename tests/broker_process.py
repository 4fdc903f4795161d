"""A broker as a user would start it: `lakelog serve` in a process of its own.

`LAKELOG_TEST_BOOTSTRAP=host:port` points the tests that need no say over the process at another
broker, such as an Apache Kafka to check the tests themselves against.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shaking import pauses
from waiting import EventTimeoutError, eventually

LAKELOG = str(Path(sys.executable).parent / "lakelog")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
QUICK_GROUPS = {"group.initial.rebalance.delay.ms": "0"}

_TIMING_EVENTS = {"loop_held_up", "slow_request"}
_READY = re.compile(r"ready on (\S+):(\d+)\D")


class BrokerError(AssertionError):
    """The broker did not start or stop as requested; the text ends with its log."""


class BrokerProcess:
    """A broker process that starts on entering the context and is killed on leaving it.

    Port 0 lets the system choose. The port is reserved while this object lives, so that no
    other process can bind it between a kill and the restart.
    """

    def __init__(
        self,
        data: Path,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        """Describe a broker that listens on `host`; its command follows `prefix`."""
        self.data = data
        self.host = host
        self.prefix = prefix
        self.port = port
        self.settings = {**QUICK_GROUPS, **(settings or {})}
        self.arguments = arguments
        self.log_path = data.parent / f"{data.name}.stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            print(f"--- {self.log_path}\n{self.log()}", file=sys.stderr)
        self.kill()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        options = [part for item in self.settings.items() for part in ("--set", "=".join(item))]
        listen = f"{self.host}:{self.port}"
        return [
            *self.prefix,
            *(LAKELOG, "serve", "--data", str(self.data), "--listen", listen),
            *options,
            *self.arguments,
        ]

    def launch(self) -> Self:
        """Starts the process without waiting for anything."""
        assert self._process is None, "already started"
        self.port = self.port or self._reserved_port()
        atexit.register(self.kill)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"NO_COLOR": "1", "COLUMNS": "400"},
            )
        pauses.note(self._process.pid)
        return self

    def _reserved_port(self) -> int:
        """Return a port bound by a socket that never listens, so that the system reserves it.

        The broker can bind it too, because both set SO_REUSEADDR (socket(7)). A connection before
        the broker listens is refused.
        """
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
            port: int = sock.getsockname()[1]
            weakref.finalize(self, os.close, sock.detach())
        return port

    def start(self) -> Self:
        """Starts and waits for the ready line."""
        return self.launch().await_ready()

    def await_ready(self) -> Self:
        """Wait for the ready line of a launched process."""
        try:
            self.port = eventually(self._port_if_ready, START_TIMEOUT_S, every_s=0.01)
        except EventTimeoutError:
            self.kill()
            raise self._failure(f"was not ready after {START_TIMEOUT_S} s") from None
        return self

    def _port_if_ready(self) -> int | None:
        assert self._process is not None
        if (match := _READY.search(self.log())) is not None:
            return int(match[2])
        if self._process.poll() is not None:
            raise self._failure(f"ended with {self._process.returncode} before it was ready")
        return None

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself since its start."""
        return self._process is not None and self._process.poll() is not None

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit status, once the process has ended by itself."""
        assert self._process is not None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"still ran after {timeout_s} s") from None
        self._process = None
        return status

    def kill(self) -> None:
        """Send SIGKILL: the broker flushes nothing and closes no connection in order."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        atexit.unregister(self.kill)

    def pause(self) -> None:
        """Send SIGSTOP: the broker does nothing until `resume`, and its connections stay."""
        pauses.spare(self.pid)
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, *, clean: bool = True) -> None:
        """SIGTERM, and an orderly end is expected.

        Args:
            clean: whether the next start needs no recovery; it does while a log is damaged.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        status = self.wait()
        if status != 0:
            raise self._failure(f"ended with {status} after SIGTERM")
        if (self.data / ".kafka_cleanshutdown").exists() != clean:
            raise self._failure(f"left .kafka_cleanshutdown behind: {not clean}")

    def restart(self) -> Self:
        """Starts again on the same port, after `kill` or `stop`."""
        return self.start()

    def log(self) -> str:
        """Return the output of the running (or last) process on its standard streams."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of `log`, all of which must be JSON."""
        return [json.loads(line) for line in whole_lines(self.log())]

    def untimed_lines(self) -> list[dict[str, Any]]:
        """Return the lines of `log` without the two warnings that a slow machine causes."""
        return [line for line in self.lines() if line["event"] not in _TIMING_EVENTS]

    @property
    def http_address(self) -> str:
        """HOST:PORT of the pages of a broker that is ready and has `--http`."""
        (served,) = (line for line in self.lines() if line["event"] == "http_ready")
        address: str = served["address"]
        return address

    def _failure(self, what: str) -> BrokerError:
        return BrokerError(f"{' '.join(self.command())}\n{what}; it logged:\n{self.log()}")


def whole_lines(log: str) -> list[str]:
    """Return the lines of a log without the last one while it is still being written."""
    return log.split("\n")[:-1]
