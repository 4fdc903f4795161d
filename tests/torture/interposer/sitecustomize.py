"""Imported by Python at the start of a process that has this folder on its path."""

from torture.failing_disk import interpose

interpose()
