"""Rows of Arrow columns into record batches.

`encode.py` has the entry point, `RowEncoder`. Nothing here sends anything.
"""
