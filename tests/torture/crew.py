"""The clients of a run: of our own programs, of other libraries, and of Java."""

from __future__ import annotations

import sys
from pathlib import Path

from client_processes import ClientProcesses
from kafka_jars import java_command
from torture.servers import NUMBERS, PARTITIONS

_LIBRARIES = ("kafka-python", "aiokafka")
_JAVA_PRODUCER = Path(__file__).parents[1] / "java" / "NotingProducer.java"


class Crew(ClientProcesses):
    """Clients of one cluster; each process has a journal of its own."""

    def __init__(self, bootstrap: str, folder: Path, seed: int) -> None:
        def command(name: str, life: int) -> list[str]:
            journal = self.journals / f"{name}.{life}.jsonl"
            return _command(name, str(life), bootstrap, str(journal), str(seed))

        super().__init__(folder, command)


def _command(name: str, *arguments: str) -> list[str]:
    role = name.partition(".")[0]
    if role == "java":
        topic = NUMBERS, str(PARTITIONS)
        return java_command("tools", _JAVA_PRODUCER, name, *arguments, *topic)
    program = "library_process" if role in _LIBRARIES else "client_process"
    return [sys.executable, "-m", f"torture.{program}", name, *arguments]
