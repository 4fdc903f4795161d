"""Record batches into Arrow columns.

`decode.py` has the only entry point, `decode_columns`. Nothing here fetches records.
"""
