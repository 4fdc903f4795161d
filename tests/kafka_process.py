"""A real Apache Kafka 4.3.1: broker and controller in one Java process on loopback.

Settings are Kafka's defaults, except for a cluster of one node. It is the oracle for responses;
tests/kafka_jars.py says where the jars come from.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import Self

import kafka_jars
from lakelog.cli.local_cluster.reservations import free_ports
from waiting import eventually

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
_SMALL_JVM = "-Xmx256m"
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaProcess:
    """A context manager: running inside, ended by its pid on leaving."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self._controller_port = free_ports("127.0.0.1", 2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        properties = self._folder / "server.properties"
        properties.write_text(
            PROPERTIES.format(
                port=self.port, controller_port=self._controller_port, folder=self._folder
            )
        )
        identity = self._storage_tool("random-uuid")
        self._storage_tool("format", "-t", identity, "-c", str(properties))
        atexit.register(self._end)
        with (self._folder / "out.log").open("ab") as log:
            self._process = subprocess.Popen(
                kafka_jars.java_command("tools", "kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ | {"JDK_JAVA_OPTIONS": _SMALL_JVM},
            )
        try:
            eventually(self._is_ready, START_TIMEOUT_S, self._last_words)
        except AssertionError:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _storage_tool(self, *arguments: str) -> str:
        done = subprocess.run(
            kafka_jars.java_command("tools", "kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            env=os.environ | {"JDK_JAVA_OPTIONS": _SMALL_JVM},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._last_words()
        return self._answers()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
                sock.sendall(_API_VERSIONS_V0)
                return len(sock.recv(4)) > 0
        except OSError:
            return False

    def _last_words(self) -> str:
        log = (self._folder / "out.log").read_text(errors="replace")
        return f"Apache Kafka's start, of which it said {log[-2000:]}"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        atexit.unregister(self._end)
