"""The demo's broker: a process that runs `lakelog serve` on a free port."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

_READY = re.compile(r"ready on (\S+:\d+)")
_STOP_S = 20.0
_COMMAND = (sys.executable, "-c", "import sys; from lakelog.cli.main import main; sys.exit(main())")


class DemoBroker:
    """A broker that is ready within the block; SIGTERM stops it at the end.

    Raises `RuntimeError` with the output of the broker if it does not start.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self.address = ""

    def __enter__(self) -> DemoBroker:
        listen = ["--listen", "127.0.0.1:0", "--set", "auto.create.topics.enable=false"]
        self._process = subprocess.Popen(
            [*_COMMAND, "serve", "--data", str(self._data), *listen],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            if ready := _READY.search(line):
                self.address = ready[1]
                self._drain = threading.Thread(target=_drain, args=[self._process.stdout])
                self._drain.start()
                return self
        # Its output has ended. The process may hang nevertheless.
        self._process.stdout.close()
        self._end()
        raise RuntimeError(f"the broker did not start: {''.join(said).strip()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        self._drain.join()

    def _end(self) -> None:
        """Stop the process, and wait for its end so that no zombie stays."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _drain(output: IO[str]) -> None:
    with output:
        for _ in output:
            pass
