"""One module per API: `handle` answers its requests, and `API` declares how it is served.

Start with `heartbeat`, the shortest. `routes` imports every module of this package, so helpers that
several handlers need are in other packages. Handlers do not import each other.
"""
