"""Producers of a log: sequence numbers, epochs, open transactions, and their snapshot files.

Read `state` first. Appends and recovery apply a batch to the state after the batch is in the log.
"""
