"""The interfaces to the outside world: clock, disk, network, randomness, tasks and processes.

Read `api.py` first, which declares them; `posix.py` and `aio.py` implement them for
a real host. All code above this package takes them as constructor arguments, so that the same
broker runs in a seeded simulation.
"""
