"""Following the journals of clients while they grow."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torture.history import OK


class Following:
    """The newest success of each role, and the number of operations so far.

    A role is a process's name before the dot, or a partition that receives single sends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._positions: dict[Path, int] = defaultdict(int)
        self._open: dict[tuple[str, int], tuple[int, list[str]]] = {}
        self.newest: dict[str, int] = defaultdict(int)
        """When the newest operation was invoked that succeeded, in nanoseconds."""
        self.operations = 0

    def look(self) -> None:
        """Read all new lines. The next call reads a line that is incomplete now."""
        for path in sorted(self._folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._positions[path])
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._positions[path] += len(whole) + 1
                for line in whole.split(b"\n"):
                    self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        role = line["process"].partition(".")[0]
        if line["type"] == "invoke":
            roles = [role]
            if line["f"] == "send":
                roles += [partition for partition, _ in line["records"]]
            self._open[line["process"], line["op"]] = line["at"], roles
            self.operations += 1
        elif line["type"] == OK and "op" in line:
            invoked, roles = self._open.pop((line["process"], line["op"]))
            for each in roles:
                self.newest[each] = max(invoked, self.newest[each])
        elif line.get("f") == "poll":
            self.operations += 1
            self.newest[role] = max(line["at"], self.newest[role])

    def have_succeeded(self, roles: Iterable[str], since: int) -> bool:
        """Return whether each role has a success that was invoked after a time."""
        self.look()
        return all(self.newest[role] > since for role in roles)
