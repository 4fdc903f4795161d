"""The clients of the endurance test."""

from __future__ import annotations

import sys
from pathlib import Path

from client_processes import ClientProcesses

_PROGRAM = Path(__file__).with_name("client_process.py")


class Crew(ClientProcesses):
    """Clients of one broker; a client that is started again continues its journal."""

    def __init__(self, bootstrap: str, folder: Path, seed: int) -> None:
        def command(name: str, begun: int) -> list[str]:
            journal = self.journals / f"{name}.jsonl"
            arguments = name.partition(".")[0], bootstrap, name, str(journal), str(seed), str(begun)
            return [sys.executable, str(_PROGRAM), *arguments]

        super().__init__(folder, command)
