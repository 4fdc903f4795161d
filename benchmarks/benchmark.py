"""The frame of scripts that measure brokers: a folder, tables on the terminal, and a record."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokers import BrokerError
from rounds import note
from tables import Table, environment, record, repeat_command, section, show

from kafka_jars import JavaMissingError


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A script whose `main` measures brokers, shows tables and records them.

    Args:
        script: its name in `benchmarks`, without `.py`.
        topic: of its section in `RESULTS.md`.
        about: returns the explanation of the figures; called after the measurement.
    """

    script: str
    topic: str
    about: Callable[[], str]

    def run(
        self,
        argv: Sequence[str],
        options: argparse.Namespace,
        measure: Callable[[Path], Iterable[Table]],
    ) -> int:
        """Show each table that `measure` yields; with `options.record`, record them at the end.

        `measure` gets a folder that is removed afterwards. Return the exit status.
        """
        # Otherwise brokers would go on and their folder, often of gigabytes, would stay.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        folder = Path(tempfile.mkdtemp(prefix="lakelog-bench-"))
        tables: list[Table] = []
        try:
            for table in measure(folder):
                if not tables:
                    print(f"{environment()}\n")
                show([table])
                tables.append(table)
        except (BrokerError, JavaMissingError, OSError) as error:
            note(f"{self.script}: {error}")
            return 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        about = self.about()
        print(about)
        if options.record:
            about = f"{about} Repeat with {repeat_command(self.script, argv)}."
            record(section(self.topic, about, tables))
        return 0
