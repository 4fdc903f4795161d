"""The clients of a simulated cluster: each a process of its own that speaks the wire protocol."""
