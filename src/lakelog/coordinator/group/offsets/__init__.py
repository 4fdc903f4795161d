"""Committed offsets: the table, OffsetCommit, TxnOffsetCommit and OffsetFetch."""
