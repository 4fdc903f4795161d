"""The two brokers under measurement, each a process on loopback that is ended by its pid."""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import kafka_jars
from lakelog.cli.local_cluster.ensemble import Home

_PROJECT = Path(__file__).parent.parent
_READY_TIMEOUT_S = 400.0
_STOP_TIMEOUT_S = 400.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

_KAFKA_JAVA_OPTIONS = ("-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The heap and the collector of Kafka's own start script."""


_LOOPBACK = Home()


class BrokerError(Exception):
    """A broker did not start or stop; the message names its log."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def answers(address: str, port: int) -> bool:
    """Whether a broker on this port answers an ApiVersions request within a second."""
    try:
        with socket.create_connection((address, port), timeout=1) as sock:
            sock.sendall(_API_VERSIONS_V0)
            return len(sock.recv(4)) > 0
    except OSError:
        return False


def process_tree(pid: int) -> list[int]:
    """The process and all below it; any thread of a process may have started others."""
    tree = [pid]
    for parent in tree:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                tree.extend(int(child) for child in children.read_text().split())
            except OSError:
                continue
    return tree


class Broker:
    """One broker process; a subclass says how to lay out its folder and what to run."""

    name: str

    def __init__(self, folder: Path, home: Home = _LOOPBACK) -> None:
        """Describe a broker that listens at the address of `home`, and runs there."""
        self.folder = folder
        self.home = home
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"{self.home.address}:{self.port}"

    def prepare(self) -> None:
        """Lays out the folder; not part of the time to ready."""

    def command(self) -> list[str]:
        raise NotImplementedError

    def verify_all(self, topic: str) -> None:
        """Has the records of every batch of a topic walked, where that is a choice."""

    def start(self) -> float:
        """Seconds from starting the process to its first ApiVersions reply."""
        started = time.monotonic()
        self.launch()
        self.await_ready()
        return time.monotonic() - started

    def launch(self) -> None:
        """Start the process without waiting for anything."""
        with (self.folder / "out.log").open("ab") as log:
            self._process = self._spawn(log)

    def await_ready(self) -> None:
        """Wait for the first ApiVersions reply."""
        assert self._process is not None, "the broker was launched"
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not answers(self.home.address, self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise BrokerError(f"{self.name} did not start: {self._last_line()}")
            time.sleep(0.005)

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """As a user would start it: with compiled modules kept."""
        return subprocess.Popen(
            [*self.home.prefix, *self.command()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env=self.environment(),
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of the process."""
        without = {"PYTHONDONTWRITEBYTECODE"}
        return {name: value for name, value in os.environ.items() if name not in without}

    def _last_line(self) -> str:
        lines = (self.folder / "out.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it wrote nothing"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker runs"
        return self._process.pid

    def has_ended(self) -> bool:
        """Return whether the process has ended by itself, or does not run."""
        return self._process is None or self._process.poll() is not None

    def cpu_seconds(self) -> float:
        """User and system time of the process and its children so far."""
        ticks = 0
        for pid in process_tree(self.pid):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_SECOND

    def resident_mb(self) -> float:
        """Resident memory of the process and its children, in 10^6 bytes."""
        pages = sum(
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in process_tree(self.pid)
        )
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def kill(self) -> None:
        """As `kill -9` does, if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class KafkaBroker(Broker):
    """Apache Kafka, KRaft, broker and controller in one JVM of 1 GB."""

    name = "Kafka"

    def prepare(self) -> None:
        properties = self.folder / "server.properties"
        properties.write_text(
            _KAFKA_PROPERTIES.format(
                port=self.port, controller_port=free_port(), folder=self.folder
            )
        )
        identity = run_storage_tool("random-uuid")
        run_storage_tool("format", "-t", identity, "-c", str(properties))

    def command(self) -> list[str]:
        return kafka_jars.java_command(
            "tools",
            "kafka.Kafka",
            str(self.folder / "server.properties"),
            options=_KAFKA_JAVA_OPTIONS,
        )


class LakelogBroker(Broker):
    """The `lakelog serve` of the environment that runs the benchmark."""

    name = "lakelog"

    def command(self) -> list[str]:
        data = str(self.folder / "data")
        return [_lakelog(), "serve", "--data", data, "--listen", self.bootstrap]

    def verify_all(self, topic: str) -> None:
        setting, address = ("--config", "records.verify=all"), ("-b", self.bootstrap)
        subprocess.run([_lakelog(), "topic", "alter", topic, *setting, *address], check=True)


class EarlierLakelog(LakelogBroker):
    """The `lakelog serve` of a commit of this project, under the Python of the benchmark."""

    def __init__(self, folder: Path, commit: str) -> None:
        """Describe a broker of `commit`, whose sources `prepare` extracts into `folder`."""
        super().__init__(folder)
        self.name = f"lakelog {commit}"
        self._commit = commit
        self._sources = folder / "commit"

    def prepare(self) -> None:
        archive = subprocess.run(
            ("git", "archive", self._commit, "src"), cwd=_PROJECT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self._sources, filter="data")
        subprocess.run((sys.executable, "-m", "compileall", "-q", self._sources), check=True)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "lakelog", *super().command()[1:]]

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(self._sources / "src")}


def _lakelog() -> str:
    program = shutil.which("lakelog", path=str(Path(sys.executable).parent))
    if program is None:
        raise BrokerError("no lakelog command beside this Python: run make setup")
    return program


def run_storage_tool(*arguments: str, prefix: Sequence[str] = ()) -> str:
    """Return the output of Kafka's storage tool, whose command follows `prefix`."""
    command = kafka_jars.java_command("tools", "kafka.tools.StorageTool", *arguments)
    done = subprocess.run(
        [*prefix, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BrokerError(f"Kafka's storage tool failed: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


BROKERS: dict[str, type[Broker]] = {"lakelog": LakelogBroker, "kafka": KafkaBroker}


def add_broker_options(parser: ArgumentParser) -> None:
    """Let the command line say which brokers `make_brokers` makes."""
    parser.add_argument("--broker", choices=BROKERS, help="measure this one alone")
    parser.add_argument(
        "--against", metavar="COMMIT", help="compare with lakelog at this commit, not with Kafka"
    )


def make_brokers(options: Namespace, folder: Path) -> list[Broker]:
    """Return the brokers to compare, or the only one; each has its own part of `folder`."""
    if options.against:
        return [
            LakelogBroker(folder / "lakelog"),
            EarlierLakelog(folder / "earlier", options.against),
        ]
    kinds = [BROKERS[options.broker]] if options.broker else list(BROKERS.values())
    return [kind(folder / kind.name) for kind in kinds]


@contextmanager
def running(brokers: Sequence[Broker]) -> Iterator[None]:
    """They are prepared and started, and stopped whatever happens."""
    try:
        for broker in brokers:
            broker.prepare()
            broker.start()
        yield
    finally:
        for broker in brokers:
            broker.stop()
