"""Apache Kafka's jars for the tests that compare with it, resolved by Maven into `build/jars`.

Programs of tests that use them are compiled once, into `build/classes`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

_HERE = Path(__file__).parent
_CACHE = _HERE.parent / "build" / "jars"
_CLASSES = _HERE.parent / "build" / "classes"
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
    command = [require("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]

    def download(folder: Path) -> None:
        subprocess.run([*command, f"-DoutputDirectory={folder}"], check=True)

    return made_once(_CACHE / f"{pom.parent.name}-{digest}", download)


def classes_of(source: Path, jars: str) -> Path:
    """The folder with the classes of one Java file, compiled once per content of that file."""
    digest = hashlib.sha256(source.read_bytes() + jars.encode()).hexdigest()[:12]

    def compile_to(folder: Path) -> None:
        # Log4j's jar has a processor of annotations, which would complain.
        command = [require("javac"), "-proc:none", "-nowarn", "-cp", jars, "-d", str(folder)]
        subprocess.run([*command, str(source)], check=True)

    return made_once(_CLASSES / f"{source.stem}-{digest}", compile_to)


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return a file or folder, which the first process makes while others wait, and all keep."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            make(partial)
            partial.rename(target)
    return target


def java_command(
    name: str, main: str | Path, *arguments: str, options: Sequence[str] = QUICK_START
) -> list[str]:
    """A command line that runs a class of the jars, or a single Java file against them.

    `options` are for Java. By default it starts fast; pass options to make it run fast.
    """
    jars = class_path(name)
    if isinstance(main, Path):
        return [
            require("java"),
            *options,
            "-cp",
            f"{classes_of(main, jars)}:{jars}",
            main.stem,
            *arguments,
        ]
    return [require("java"), *options, "-cp", jars, main, *arguments]
