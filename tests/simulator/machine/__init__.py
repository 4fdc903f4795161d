"""A simulated machine: its clock, its disk with a page cache, and its helper processes."""
