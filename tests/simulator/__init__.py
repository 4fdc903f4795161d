"""Deterministic simulation testing of the production broker.

`run_world(World(seed))` starts brokers (`server.app` as it is shipped) on simulated machines.
Clients of all kinds use them over a simulated network while the nemesis injects faults. Then all
faults end, and the checkers compare the responses with the logs. A violation is a bug, here or in
the broker, that the same seed reproduces.

Not simulated: threads (offloaded work takes no time), limits of memory and CPU, and time that
passes while code runs. The metadata log is SQLite itself, on the simulated disk.
"""

from simulator.execution import WorldOutcome, run_world
from simulator.plan import Plan
from simulator.world import World

__all__ = ["Plan", "World", "WorldOutcome", "run_world"]
