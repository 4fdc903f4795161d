"""Apache Kafka's verdict on the files of a data folder.

`org.apache.kafka.tools.DumpLogSegments` reads the logs, indexes and snapshots, comparing indexes
with logs; `FileOracle.java` reads everything else with the classes that Kafka uses for it. Both
take all files at once, because a JVM is slow to start.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import kafka_jars

_ORACLE = Path(__file__).parent / "java" / "FileOracle.java"
_DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_COMPLAINTS = ("isvalid: false", "invalid bytes", "Mismatch", "mismatch", "Could not")
_LOGGER = ("SLF4J", "log4j", "StatusLogger")
_GAPS = "Non-consecutive offsets in "
_GAP = re.compile(r"  -?\d+ is followed by \d+")
_TIMEOUT_S = 300
_ARGUMENT_MAX = 120_000


def check_data_folder(path: Path, *, compacted: bool = False) -> dict[str, str]:
    """What Kafka read in each file but the logs, by its path in the folder.

    `compacted` says that offsets may be missing. Raises `AssertionError` with every complaint.
    The folder must not be changing.
    """
    files = sorted(file for file in path.rglob("*") if file.suffix in _DUMPED)
    assert files, f"{path} has no logs"
    complaints = _dump(files)
    if compacted:
        complaints = [line for line in complaints if not _names_gaps(line)]
    found, more = _read_others(path)
    if compacted:  # a snapshot may contain a batch that is no longer the last of its producer
        more = [line for line in more if ".snapshot has [" not in line]
    complaints.extend(more)
    assert not complaints, "\n".join(complaints)
    return found


def _names_gaps(line: str) -> bool:
    return line.startswith(_GAPS) or _GAP.fullmatch(line) is not None


def dump(files: list[Path], *options: str) -> tuple[str, list[str]]:
    """Standard output of the dump tool, and the lines on standard error that it wrote itself."""
    names = ",".join(str(file) for file in files)
    main = "org.apache.kafka.tools.DumpLogSegments"
    command = kafka_jars.java_command("tools", main, *options, "--files", names)
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=True
    )
    own = [line for line in done.stderr.splitlines() if line and not _is_logging(line)]
    return done.stdout, _without_first_offsets(own)


def _without_first_offsets(lines: list[str]) -> list[str]:
    """Drop the tool's complaint about every segment that does not begin at 0.

    Iterating deeply it starts each file at offset -1, so the segment's own base follows that.
    """
    kept: list[str] = []
    for line in lines:
        header = kept[-1] if kept else ""
        if header.startswith(_GAPS) and line == f"  -1 is followed by {int(Path(header).stem)}":
            continue
        if header.startswith(_GAPS) and not line.startswith("  "):
            kept.pop()
        kept.append(line)
    if kept and kept[-1].startswith(_GAPS):
        kept.pop()
    return kept


def _dump(files: list[Path]) -> list[str]:
    """Return the tool's complaints from its output; it always exits with 0."""
    output, complaints = "", []
    for some in _shares(files):
        printed, own = dump(some, "--deep-iteration")
        output += printed
        complaints += own
    for file in files:
        if f"Dumping {file}\n" not in output:
            complaints.append(f"{file} was not read")
    dumping = ""
    for line in output.splitlines():
        if line.startswith("Dumping "):
            dumping = line.removeprefix("Dumping ")
        elif any(complaint in line for complaint in _COMPLAINTS):
            complaints.append(f"{dumping}: {line}")
    return complaints


def _shares(files: list[Path]) -> Iterator[list[Path]]:
    """Linux takes no more than 128 KiB in one argument."""
    capacity = _ARGUMENT_MAX // (max(len(str(file)) for file in files) + 1)
    for start in range(0, len(files), capacity):
        yield files[start : start + capacity]


def _is_logging(line: str) -> bool:
    return line.startswith(_LOGGER) or " StatusLogger " in line


def _read_others(path: Path) -> tuple[dict[str, str], list[str]]:
    with tempfile.TemporaryDirectory() as scratch:
        command = kafka_jars.java_command("formats", _ORACLE, str(path), scratch)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    complaints = [line for line in done.stderr.splitlines() if line and not _is_logging(line)]
    if done.returncode:
        complaints.append(f"the oracle exited with {done.returncode}")
    found = {}
    for line in done.stdout.splitlines():
        name, _, content = line.partition("\t")
        if name == "ERROR":
            complaints.append(content.replace("\t", ": "))
        else:
            found[name] = content
    return found, complaints
