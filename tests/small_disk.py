"""A file system of a few megabytes that outlives the brokers whose data folder is on it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from broker_process import BrokerProcess


class SmallDisk:
    """A tmpfs in user and mount namespaces of its own, from entering the context to leaving it."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self._size = size
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        script = f'mount -t tmpfs -o size={self._size} tmpfs "$0" && echo && exec cat'
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._holder is not None:
            self._holder.communicate()

    @property
    def pid(self) -> int:
        """Of a process that sees the file system."""
        assert self._holder is not None
        return self._holder.pid

    @property
    def seen_folder(self) -> Path:
        """The folder as processes outside of the namespaces reach it."""
        return Path(f"/proc/{self.pid}/root", *self.folder.parts[1:])

    @property
    def inside(self) -> list[str]:
        """The beginning of a command that runs with the file system at its folder."""
        ways = ["nsenter", "--user", "--mount", "--preserve-credentials"]
        return [*ways, f"--target={self.pid}"]

    def fill(self) -> None:
        """Leaves not a byte."""
        size = 1 << 20
        with (self.seen_folder / "filler").open("ab", buffering=0) as file:
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def free_capacity(self) -> None:
        (self.seen_folder / "filler").unlink(missing_ok=True)


class SmallDiskBroker(BrokerProcess):
    """Its data folder is a small disk."""

    def __init__(
        self, disk: SmallDisk, settings: dict[str, str], arguments: tuple[str, ...] = ()
    ) -> None:
        super().__init__(disk.folder, settings=settings, arguments=arguments)
        self.disk = disk

    def command(self) -> list[str]:
        return [*self.disk.inside, *super().command()]

    def events(self, name: str) -> int:
        return self.log().count(f'"event": "{name}"')
