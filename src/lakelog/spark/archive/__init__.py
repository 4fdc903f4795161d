"""Moves topics into Iceberg tables, each record exactly once.

A Structured Streaming job whose rows are offset ranges. Tasks fetch, decode and write Parquet;
the driver commits the files and the new end offsets in one transaction of the table. The table
is therefore the only progress there is: Spark's checkpoint may be lost, or belong to a process
that is still dying while its successor runs, and nothing is lost or repeated.

Read `progress.py` first (what a batch may do), then `commit.py` (how it does it), `history.py` and
`reconcile.py` (what stops it), then `run.py` (what starts it again) and `sync.py` (`sync_topic`).
Spark's many Python processes import `stream.py`; PyIceberg, which takes a second to import, is only
for those that commit.
"""
