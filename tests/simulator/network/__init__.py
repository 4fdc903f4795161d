"""The simulated network, its sockets, and a client's connection over it."""
