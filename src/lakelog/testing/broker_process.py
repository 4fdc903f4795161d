"""A broker in a process of its own, for the time of a `with` block.

The broker never outlives the process that started it (`broker_program`), and its port is its own
from the first start to the end of the block, across restarts.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.config.quantities import plain_value
from lakelog.cli.local_cluster.ports import port_of, reserve

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_HOST = "127.0.0.1"
# -P: modules in the test's working directory do not take the place of others.
_PROGRAM = (sys.executable, "-P", "-m", "lakelog.testing.broker_program")
# A tracer that measures the test's coverage in its subprocesses would slow the broker down.
_COVERAGE = ("COVERAGE_PROCESS_", "COV_CORE_")
Setting = str | int | float | bool
"""A value of a setting; True is Kafka's `true`."""

QUICK_SETTINGS: dict[str, Setting] = {
    # A new group has one member in most tests: do not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    # Fewer files: a test has few groups and transactions, and throws its disk away.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "lakelog.disk.reserve.bytes": "0",
}


class BrokerError(Exception):
    """The broker did not start, did not stop or ended by itself; the text ends with its log."""


class Broker:
    """A running broker, made by `broker`.

    `bootstrap_servers` is the address for clients, the same for as long as the block lasts.
    """

    def __init__(
        self, data: Path, scratch: Path, port: int, settings: Mapping[str, Setting]
    ) -> None:
        self.data = data
        self._scratch = scratch
        self._log = scratch / "broker.log"
        self._settings = tuple(f"{key}={setting_text(value)}" for key, value in settings.items())
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved = _reserve(port)
        self.port = port_of(self._reserved)

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, as clients want it."""
        return f"{_HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process, for signals such as SIGSTOP.

        Raises `BrokerError` if it does not run.
        """
        return self._running().pid

    @property
    def log(self) -> str:
        """All that the broker has logged since its first start."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start the broker after `kill` or `stop`; return when it accepts connections.

        Raises `BrokerError` if it runs already or does not become ready.
        """
        if self._process is not None:
            raise BrokerError(f"the broker on {self.bootstrap_servers} runs already")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_PROGRAM, self._scratch, self.data, str(self.port), *self._settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                process_group=0,  # ^C is for the test alone, which then stops the broker
            )
        self._await_ready(self._process)

    def stop(self) -> None:
        """Stop the broker in order, as SIGTERM does. Raises `BrokerError` if that fails."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"did not stop within {STOP_TIMEOUT_S:.0f} s") from None
        self._forget(process)
        if status != 0:
            raise self._failure(f"ended with status {status}")

    def kill(self) -> None:
        """Kill the broker as SIGKILL does: nothing is flushed, and connections break.

        Raises `BrokerError` if it does not run.
        """
        process = self._running()
        process.kill()
        # Until the process is reaped, its port and its lock of the folder are taken.
        process.wait()
        self._forget(process)

    def restart(self) -> None:
        """Stop the broker if it runs, and start it again, with its address and its data.

        Raises `BrokerError` if the stop or the start fails.
        """
        if self._process is not None:
            self.stop()
        self.start()

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, Setting] | None = None
    ) -> None:
        """Create a topic; values of `config` may be durations and sizes, such as 7d and 1GiB.

        Raises `KafkaError` of the broker's code if the broker rejects it, and `ConfigError` for a
        value that is none.
        """
        configs = {
            key: plain_value(key, setting_text(value)) for key, value in (config or {}).items()
        }
        with self._admin() as admin:
            admin.topics.create(name, partitions=partitions, configs=configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises `TopicNotFoundError`."""
        with self._admin() as admin:
            admin.topics.delete(name)

    def close(self) -> None:
        """Stop the broker if it runs, and release its port.

        Raises `BrokerError` if the broker did not stop in order.
        """
        with self._reserved:
            if self._process is not None:
                self.stop()

    def _admin(self) -> Admin:
        from lakelog.client.admin import Admin

        self._running()
        return Admin(self.bootstrap_servers, client_id="lakelog-testing")

    def _running(self) -> subprocess.Popen[bytes]:
        """The process. Raises `BrokerError` if there is none, or if it ended by itself."""
        process = self._process
        if process is None:
            raise BrokerError(
                f"the broker on {self.bootstrap_servers} does not run; start() starts it"
            )
        status = process.poll()
        if status is not None:
            self._forget(process)
            raise self._failure(f"ended by itself with status {status}")
        return process

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        polled = select.poll()
        polled.register(process.stdout, select.POLLIN)
        said = bool(polled.poll(START_TIMEOUT_S * 1000))
        if said and process.stdout.readline():
            return
        if not said:
            process.kill()
        status = process.wait()
        self._forget(process)
        late = f"was not ready after {START_TIMEOUT_S:.0f} s"
        raise self._failure(f"ended with status {status} before it was ready" if said else late)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        self._process = None

    def _failure(self, what: str) -> BrokerError:
        return BrokerError(f"the broker on {self.bootstrap_servers} {what}; it logged:\n{self.log}")


@contextmanager
def broker(
    topics: Iterable[str] | Mapping[str, int] = (),
    *,
    settings: Mapping[str, Setting] | None = None,
    folder: str | os.PathLike[str] | None = None,
    port: int = 0,
) -> Iterator[Broker]:
    """Run a broker for the time of a `with` block; a fraction of a second passes before it.

    Args:
        topics: names of topics to create, or a mapping of names to numbers of partitions.
        settings: the broker's settings, with Kafka's keys.
        folder: where the broker keeps its data, which then stays; else a temporary folder.
        port: on 127.0.0.1; 0 takes a free one.

    Raises `BrokerError` if the broker does not start, or was not in order at the end of the block.
    """
    if isinstance(topics, str):
        raise TypeError(f"topics is the string {topics!r}; pass a list: [{topics!r}]")
    partitions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    with tempfile.TemporaryDirectory(prefix="lakelog-", ignore_cleanup_errors=True) as scratch:
        data = Path(scratch) / "data" if folder is None else Path(folder).absolute()
        merged = QUICK_SETTINGS | dict(settings or {})
        with closing(Broker(data, Path(scratch), port, merged)) as running:
            running.start()
            for name, count in partitions.items():
                running.create_topic(name, count)
            yield running


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_COVERAGE)}
    return kept | {"NO_COLOR": "1"}


def setting_text(value: Setting) -> str:
    """Return a value as a file of settings has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reserve(port: int) -> socket.socket:
    """Return a reservation of the port (`ports.reserve`). Raises `BrokerError`."""
    try:
        return reserve(_HOST, port)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BrokerError(f"port {port} on {_HOST}: {reason}; port=0 takes a free one") from error
