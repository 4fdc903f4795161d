"""Apache Kafka's generated message classes, in one Java process, as an oracle for ours."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple

import kafka_jars
from lakelog.wire.schema import Message

_PROGRAM = Path(__file__).parent / "java" / "WireOracle.java"
_CLIENTS = "org.apache.kafka.common.message"


class JavaRefusedError(Exception):
    """Java could not read the bytes, or could not write the message again."""


class Target(NamedTuple):
    """A class of ours and the Java class that must agree with it."""

    kind: type[Message]
    java: str

    @classmethod
    def of(cls, kind: type[Message], package: str = _CLIENTS) -> Target:
        """Kafka's generator adds `Data` to the names of requests and responses."""
        name = kind.__name__
        suffix = "Data" if name.endswith(("Request", "Response")) else ""
        return cls(kind, f"{package}.{name}{suffix}")


class JavaOracle:
    """`read_and_write` sends bytes through a Java class; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            kafka_jars.java_command("formats", _PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> JavaOracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream(self._process.stdin).close()
        self._stream(self._process.stdout).close()
        self._process.wait(timeout=60)

    def read_and_write(self, java_class: str, version: int, data: bytes) -> bytes:
        """The bytes that Java writes for the message it read; raises `JavaRefusedError`."""
        name = java_class.encode()
        head = struct.pack(f">h{len(name)}shi", len(name), name, version, len(data))
        requests = self._stream(self._process.stdin)
        requests.write(head + data)
        requests.flush()
        answers = self._stream(self._process.stdout)
        status, size = struct.unpack(">bi", answers.read(5))
        answer = answers.read(size)
        if status:
            raise JavaRefusedError(f"{java_class} v{version}: {answer.decode()}")
        return answer

    @staticmethod
    def _stream(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        return stream
