"""Simulated members of consumer groups, dynamic and static."""
