"""Files that a broker rebuilds from its logs: any bit may flip while it is down."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from simulator.brokers.host import DATA, BrokerHost

_DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")


def derived_files(host: BrokerHost) -> list[Path]:
    """Return the files of this kind with contents."""
    folders = [DATA / name for name in sorted(host.disk.list(DATA))]
    return [
        folder / name
        for folder in filter(host.disk.is_dir, folders)
        for name in sorted(host.disk.list(folder))
        if name.endswith(_DERIVED) and host.disk.size(folder / name)
    ]


def flip_in_one(host: BrokerHost, files: Sequence[Path], rng: random.Random) -> bool:
    """Flip one bit of one of these files; return whether there is one."""
    if files:
        path = rng.choice(files)
        host.disk.flip(path, rng.randrange(8 * host.disk.size(path)))
    return bool(files)
