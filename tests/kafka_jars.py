"""Apache Kafka's jars for the tests that compare with it, resolved by Maven into `build/jars`."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_CACHE = _HERE.parent / "build" / "jars"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Programs of seconds: compiling them well costs more than it saves."""


class JavaMissingError(Exception):
    """Raised instead of skipping: an oracle that was not consulted has not agreed."""


def require(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise JavaMissingError(
            f"{program} not found: install a JDK 17 and Maven "
            "(Debian: apt-get install openjdk-17-jdk-headless maven)"
        )
    return found


def class_path(name: str) -> str:
    """The class path of `tests/java/<name>/pom.xml`."""
    return f"{jars_of(_HERE / 'java' / name / 'pom.xml')}/*"


def jars_of(pom: Path) -> Path:
    """The folder with the jars that a pom names, downloaded once per content of that file."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    target = _CACHE / f"{pom.parent.name}-{digest}"
    if not target.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _download(pom, target)
    return target


def _download(pom: Path, target: Path) -> None:
    """Where several processes run tests, one of them does this while the others wait."""
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [require("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True)
    partial.rename(target)


def java_command(
    name: str, main: str | Path, *arguments: str, options: Sequence[str] = QUICK_START
) -> list[str]:
    """A command line that runs a class of the jars, or a single Java source file against them.

    `options` are for Java. By default it starts fast; pass options to make it run fast.
    """
    return [require("java"), *options, "-cp", class_path(name), str(main), *arguments]
