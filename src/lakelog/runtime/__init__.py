"""The seams to the outside world: clock, disk, network, randomness and task spawning.

`api` declares them; `posix` and `aio` are the real ones. Everything above this package takes
them as constructor arguments, so that the same broker runs in a seeded simulation.
"""
