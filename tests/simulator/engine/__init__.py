"""Deterministic execution: virtual time, processes, clocks, and streams of random numbers."""
