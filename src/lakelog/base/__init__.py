"""The vocabulary of all layers: error codes, ids, hashes, events of the log, configuration.

Read `errors.py` first, the error codes of the protocol. `config/` holds the configuration.

Nothing here does I/O or imports another package of lakelog.
"""
