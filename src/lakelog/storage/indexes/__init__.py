"""Index files of a segment: offset to position, timestamp to offset, aborted transactions.

Read `segment_index` first, then `txn_index`. These modules hold and encode entries. Whether the
entries agree with the log is decided in `segments`.
"""
