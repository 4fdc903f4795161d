"""Fault injection: when something fails, and which bits flip on disk."""
