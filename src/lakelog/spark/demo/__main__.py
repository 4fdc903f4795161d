"""`python -m lakelog.spark.demo [--input FILE]`. Exits with 1 after an error or a difference."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from rich.console import Console

from lakelog.spark.demo.report import ProofError, split_lines, write_generated_log
from lakelog.spark.session import JavaMissingError, local_session, require_java

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


_ARCHIVED_SHARE = 0.9


def demo(input_: Path | None = None) -> int:
    """Run the demonstration with an access log, or with a generated one."""
    errors = Console(stderr=True)
    try:
        require_java()
    except JavaMissingError as error:
        errors.print(f"[bold red]error[/] {error}", soft_wrap=True)
        return 1
    if input_ is not None and not input_.is_file():
        errors.print(f"[bold red]error[/] file not found: {input_}", soft_wrap=True)
        return 1
    with tempfile.TemporaryDirectory(prefix="lakelog-demo-") as folder:
        try:
            return _run(input_, Path(folder), errors)
        except ProofError as error:
            errors.print(f"[bold red]error[/] {error}", soft_wrap=True)
            return 1


def _run(log: Path | None, folder: Path, progress: Console) -> int:
    from lakelog.spark.demo.pipeline import LINES_TOPIC, REQUESTS_TOPIC, Demo
    from lakelog.spark.demo.report import print_ledgers, print_requests

    began = time.monotonic()

    def step(text: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began:5.1f} s[/]  {text}", highlight=False)

    if log is None:
        log = folder / "generated.log"
        write_generated_log(log)
    with log.open("rb") as file, DemoBroker(folder / "broker") as broker:
        step(f"broker ready on {broker.address}")
        spark = local_session("lakelog demo", log=folder / "spark.log")
        try:
            step("Spark ready")
            run = Demo(broker.address, folder, spark)
            run.create_topics()
            first, rest = split_lines(file, log.stat().st_size * _ARCHIVED_SHARE)
            step(f"{run.produce(first):,} lines of {log.name} produced into '{LINES_TOPIC}'")
            with run.parsing_stream() as query:
                query.processAllAvailable()
                step(f"parsed by a PySpark stream into '{REQUESTS_TOPIC}'")
                archives = {topic: run.archive(topic) for topic in (LINES_TOPIC, REQUESTS_TOPIC)}
                for topic, archive in archives.items():
                    step(f"{archive.rows:,} records of '{topic}' archived into Iceberg")
                step(f"{run.produce(rest):,} more lines produced after that, which stay live")
                query.processAllAvailable()
            requests = run.requests()
            step("counted by Spark")
            ledgers = [run.ledger(topic, archive) for topic, archive in archives.items()]
            step("counted again by two independent readers")
        finally:
            spark.stop()
    step("all processes stopped")
    console = Console()
    print_requests(console, requests)
    print_ledgers(console, ledgers)
    lines = sum(ledgers[0].produced.values())
    complete = requests.parsed + requests.malformed == lines
    if complete and all(ledger.holds(p) for ledger in ledgers for p in ledger.produced):
        console.print(f"[green]All {lines:,} lines are where they should be.[/]")
        return 0
    console.print("[bold red]Something is missing, repeated or changed.[/]")
    return 1


def main() -> int:
    """Run the demonstration with the arguments of this process."""
    parser = argparse.ArgumentParser(
        prog="lakelog-demo", description="From a log file to a Spark table."
    )
    parser.add_argument(
        "--input",
        type=Path,
        help="Access log in the combined format of Apache and nginx (default: a generated one).",
    )
    return demo(parser.parse_args().input)


if __name__ == "__main__":
    sys.exit(main())
