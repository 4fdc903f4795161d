"""Brokers in processes of their own, one or a cluster, for the time of a `with` block.

A broker never outlives the process that started it (`lakelog.cli.attached_broker`), and its port is
its own from the first start to the end of the block, across restarts. A test kills and restarts
the brokers of a cluster by their node ids.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.config.quantities import plain_value
from lakelog.cli.local_cluster.reservations import port_of, reserve

if TYPE_CHECKING:
    from lakelog.client.admin import Admin


START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_HOST = "127.0.0.1"
# -P: modules in the test's working directory do not take the place of others.
_PROGRAM = (sys.executable, "-P", "-m", "lakelog.cli.attached_broker")
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
        self._settings = tuple(f"{key}={_setting_text(value)}" for key, value in settings.items())
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
                [*_PROGRAM, "--scratch", self._scratch, *self._arguments()],
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
        configs = _topic_configs(config)
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

    def _arguments(self) -> list[str]:
        settings = [f"--set={setting}" for setting in self._settings]
        listener = [f"--data={self.data}", f"--listen={_HOST}:{self.port}"]
        return [*listener, "--log-format=text", *settings]

    def _admin(self) -> Admin:
        self._running()
        return _admin(self.bootstrap_servers)

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
    partitions = _partitions(topics)
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


def _setting_text(value: Setting) -> str:
    """Return a value as a file of settings has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topic_configs(config: Mapping[str, Setting] | None) -> dict[str, str]:
    return {key: plain_value(key, _setting_text(value)) for key, value in (config or {}).items()}


def _partitions(topics: Iterable[str] | Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of partitions of each topic. Raises `TypeError` for one name."""
    if isinstance(topics, str):
        raise TypeError(f"topics is the string {topics!r}; pass a list: [{topics!r}]")
    return topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def _admin(bootstrap: str) -> Admin:
    from lakelog.client.admin import Admin

    return Admin(bootstrap, client_id="lakelog-testing")


def _reserve(port: int) -> socket.socket:
    """Return a reservation of the port (`reserve`). Raises `BrokerError`."""
    try:
        return reserve(_HOST, port)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BrokerError(f"port {port} on {_HOST}: {reason}; port=0 takes a free one") from error


_REPLICATION_FACTOR_MAX = 3
_POLL_S = 0.05
_SHOWN = 20
"""The most lines of an error about replicas."""


class Cluster:
    """Running brokers by node id, made by `cluster`; node ids begin with 1."""

    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        self.brokers = brokers

    def __repr__(self) -> str:
        return f"<Cluster {self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients want them."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def controller_id(self) -> int:
        """The node id of the controller; -1 if there is none at present."""
        with _admin(self.bootstrap_servers) as admin:
            return admin.brokers.describe().controller_id

    def leader_id(self, topic: str, partition: int = 0) -> int:
        """Return the node id of a partition's leader; -1 if it has none at present.

        Raises `TopicNotFoundError`.
        """
        with _admin(self.bootstrap_servers) as admin:
            return admin.topics.describe(topic).partitions[partition].leader

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, Setting] | None = None,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic with three replicas, or with as many as there are brokers.

        `config` and the errors are as for `Broker.create_topic`.
        """
        configs = _topic_configs(config)
        with _admin(self.bootstrap_servers) as admin:
            admin.topics.create(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )

    def await_in_sync(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when all brokers serve and all replicas are in sync.

        timeout_s: seconds. Raises `BrokerError`, which names the brokers and replicas that are not.
        """
        from lakelog.base.errors import KafkaError

        deadline = time.monotonic() + timeout_s
        missing: Sequence[object] = ()
        while time.monotonic() < deadline:
            # A broker that starts, or a change of the controller, is an error of the request.
            try:
                missing = self._out_of_sync()
            except KafkaError as error:
                missing = [error]
            if not missing:
                return
            time.sleep(_POLL_S)
        text = "\n".join(str(what) for what in missing[:_SHOWN])
        raise BrokerError(f"not in sync after {timeout_s:g} s:\n{text}")

    def _out_of_sync(self) -> list[str]:
        """Name the brokers that do not serve, and the partitions whose replicas are not in sync."""
        with _admin(self.bootstrap_servers) as admin:
            described = admin.brokers.describe().brokers
            online = {broker.node_id for broker in described if not broker.is_fenced}
            topics = admin.topics.list(internal=True)
        partitions = [
            f"{topic.name}-{row.partition} with leader {row.leader} and ISR {row.isr}"
            for topic in topics
            for row in topic.partitions
            if len(row.isr) != len(row.replicas) or row.leader < 0
        ]
        return [f"broker {node}" for node in sorted(set(self.brokers) - online)] + partitions


@contextmanager
def cluster(
    topics: Iterable[str] | Mapping[str, int] = (),
    *,
    brokers: int = 3,
    settings: Mapping[str, Setting] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[Cluster]:
    """Run brokers that form a cluster for the time of a `with` block.

    A new topic has three replicas and needs two of them in sync, if there are three brokers.

    Args:
        topics: names of topics to create, or a mapping of names to numbers of partitions.
        brokers: how many.
        settings: of every broker, with Kafka's keys.
        folder: where the brokers keep their data, which then stays; else a temporary folder.

    Raises `BrokerError` if a broker does not start, or was not in order at the end of the block.
    """
    partitions = _partitions(topics)
    if brokers < 1:
        raise ValueError(f"a cluster has at least 1 broker, not {brokers}")
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as stack,
    ):
        root = Path(scratch if folder is None else folder).absolute()
        root.mkdir(parents=True, exist_ok=True)
        common = _cluster_settings(brokers, root) | dict(settings or {})
        running = {}
        for node_id in range(1, brokers + 1):
            own = Path(scratch) / f"scratch-{node_id}"
            own.mkdir()
            data = root / f"broker-{node_id}"
            made = Broker(data, own, 0, common | {"node.id": node_id})
            running[node_id] = stack.enter_context(closing(made))
            made.start()
        whole = Cluster(running)
        whole.await_in_sync()
        for name, count in partitions.items():
            whole.create_topic(name, count)
        yield whole


def _cluster_settings(brokers: int, root: Path) -> dict[str, Setting]:
    factor = min(brokers, _REPLICATION_FACTOR_MAX)
    return QUICK_SETTINGS | {
        "lakelog.metadata.store": f"sqlite:{root / 'metadata.db'}",
        "default.replication.factor": factor,
        "min.insync.replicas": 2 if factor == _REPLICATION_FACTOR_MAX else 1,
    }
