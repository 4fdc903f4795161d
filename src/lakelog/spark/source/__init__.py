"""Queries that read topics: `spark.read` and `spark.readStream` with `format("lakelog")`.

Read `batch.py` first, then `stream.py`, which handles changes under a running query
(`continuation.py`). Decoding and reading of ranges are in `lakelog.tables.topic`.
"""
