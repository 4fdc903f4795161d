"""Stores of the metadata log.

Read `api.py` first, the contract of all stores. `embedded.py` is the store in the data folder, over
`sqlite.py` (the log in one file) and `liveness.py` (the live brokers of this host).

A store does not know the meaning of records.
"""
