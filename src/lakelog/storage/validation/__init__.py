"""Checks of a batch before it is appended: size, checksum, counts, timestamps, records.

Read `batches` first. Sequence numbers and epochs of producers are checked in `producers`.
"""
