"""One module per API: `handle` answers its requests, and `API` declares how it is served.

`heartbeat` is the shortest, `produce` and `fetch` are the ones that matter most. `routes` finds the
modules by their being here, so a helper that several of them need has its place in another room.
Handlers do not import each other.
"""
