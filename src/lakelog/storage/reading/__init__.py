"""Searches in a log: by offset, by timestamp, and for aborted transactions.

Read `seeking` first: it decides whether the event loop can search without waiting for the device.
Nothing here changes a log, except its cache of recent reads.
"""
