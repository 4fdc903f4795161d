"""Simulated readers of partitions, and queries whose answers the records imply."""
