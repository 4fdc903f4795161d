"""Hosts of the run's own: network namespaces on one bridge, which can be cut off from each other.

The run is in a namespace of its own, which ends with its last process, so nothing outside it ever
sees these addresses. A cut is one-way: the sender's neighbour entry of the receiver points to a
hardware address of no device, so packets vanish without any error, as on a broken link.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

from waiting import eventually

CLIENTS = "clients"
_BRIDGE, _DEVICE = "hub", "eth0"
_NETWORK = "198.18.0.{}"
"""A network for benchmarks of devices (RFC 2544), which no real host uses."""
_CLIENTS_NUMBER = 254
_NO_DEVICE = "02:00:00:00:00:ff"


class Cut(NamedTuple):
    """Packets from one host to another vanish."""

    sender: str
    receiver: str


class _Host(NamedTuple):
    address: str
    prefix: tuple[str, ...]
    device: str


def enter_own_network(command: list[str]) -> None:
    """Replace this process by a command in namespaces of its own, for networks and for mounts."""
    sys.stdout.flush()
    # Without root, it needs to be root of a user namespace, which some systems forbid.
    options = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    os.execvp("unshare", ["unshare", "--net", "--mount", *options, *command])


class Hosts:
    """A context manager: named hosts beside that of the run itself, `CLIENTS`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._hosts: dict[str, _Host] = {}
        self._cuts: set[Cut] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        address = _NETWORK.format(_CLIENTS_NUMBER)
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{address}/24", "dev", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        self._hosts[CLIENTS] = _Host(address, (), _BRIDGE)
        for number, name in enumerate(self._names, 1):
            self._hosts[name] = self._add(number)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, number: int) -> _Host:
        # It ends with its standard input, so also when this process is killed.
        keeper = self._stack.enter_context(
            subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE)
        )
        assert keeper.stdin is not None
        self._stack.callback(keeper.stdin.close)
        address, outer = _NETWORK.format(number), f"host{number}"
        _await_own_network(keeper.pid)
        prefix = ("nsenter", f"--net=/proc/{keeper.pid}/ns/net", "--")
        inner = ("name", _DEVICE, "netns", str(keeper.pid))
        _run("ip", "link", "add", outer, "type", "veth", "peer", *inner)
        _run("ip", "link", "set", outer, "master", _BRIDGE, "up")
        _run(*prefix, "ip", "link", "set", "lo", "up")
        _run(*prefix, "ip", "addr", "add", f"{address}/24", "dev", _DEVICE)
        _run(*prefix, "ip", "link", "set", _DEVICE, "up")
        return _Host(address, prefix, _DEVICE)

    def address(self, name: str) -> str:
        return self._hosts[name].address

    def prefix(self, name: str) -> tuple[str, ...]:
        """Return the words before a command that is to run on this host."""
        return self._hosts[name].prefix

    def cut(self, cuts: Iterable[Cut]) -> None:
        for cut in set(cuts) - self._cuts:
            self._neighbour(cut, "replace", "lladdr", _NO_DEVICE, "nud", "permanent")
            self._cuts.add(cut)

    def heal(self, cuts: Iterable[Cut]) -> None:
        for cut in self._cuts.intersection(cuts):
            self._neighbour(cut, "del")
            self._cuts.remove(cut)

    def _neighbour(self, cut: Cut, verb: str, *entry: str) -> None:
        sender, receiver = self._hosts[cut.sender], self.address(cut.receiver)
        _run(*sender.prefix, "ip", "neigh", verb, receiver, *entry, "dev", sender.device)


def _await_own_network(pid: int) -> None:
    """Return when the process has entered its namespace."""
    own = Path("/proc/self/ns/net").readlink()
    its = Path(f"/proc/{pid}/ns/net")
    eventually(lambda: its.readlink() != own, every_s=0.001)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
