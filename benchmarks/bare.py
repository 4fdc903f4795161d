"""The kernel's share of a fetch, measured beside the brokers: see `bare.c`."""

from __future__ import annotations

from pathlib import Path

from brokers import Broker
from load import Case, Measurement
from programs import Program

_SENT_FROM_FILE_MIN = 64 * 1024


class BareSendfile:
    """A server that sends ranges of one file, and no broker."""

    name = "bare sendfile"
    port = 0

    def __init__(self, build_folder: Path) -> None:
        self._program = Program("bare", build_folder)

    @staticmethod
    def applies_to(case: Case) -> bool:
        return case.mode == "fetch" and case.batch >= _SENT_FROM_FILE_MIN

    def measure(self, case: Case, broker: Broker) -> Measurement:
        """Of the largest file that the broker has of the case's topic."""
        files = broker.folder.glob(f"data/{case.topic}-0/*.log")
        path = max(files, key=lambda file: file.stat().st_size)
        found = self._program.run(self, path=path, batch=case.batch, megabytes=case.megabytes)
        return Measurement(**found)
