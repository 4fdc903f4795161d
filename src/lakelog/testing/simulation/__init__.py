"""A seeded world around the production broker, in which everything that can go wrong does.

`World(seed).run()` starts brokers (`server.app` as it is shipped) on simulated machines, lets
clients of all kinds work on them over a simulated network, does harm to all of these for some time
(`nemesis`), and then heals it and looks whether what clients were told is what the logs hold
(`ledger`, `offsets_ledger`, `inspection`); offsets and epochs are watched after every change on the
disk (`watcher`). An outcome with violations is a bug, here or in the broker, that the same seed
shows again and again.

What it does not have: threads (their work is done at once, at some moment), memory and CPU limits,
and time that passes while code runs. The metadata log is SQLite itself, on the simulated disk.
"""

from lakelog.testing.simulation.plan import Plan
from lakelog.testing.simulation.world import Outcome, World

__all__ = ["Outcome", "Plan", "World"]
