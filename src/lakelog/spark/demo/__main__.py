"""`python -m lakelog.spark.demo [--input FILE]`. Exits with 1 after an error or a difference."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from lakelog.spark.demo.broker_process import DemoBroker
from lakelog.spark.demo.lines import split_lines, write_generated_log
from lakelog.spark.demo.proof import ProofError
from lakelog.spark.session import JavaMissingError, local_session, require_java

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
