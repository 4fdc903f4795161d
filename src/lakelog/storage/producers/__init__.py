"""Producers of a log: sequence numbers, epochs, open transactions, and their snapshot files.

Read `state` first. What a batch says is applied here after the batch is in the log, by appends and
by recovery alike.
"""
