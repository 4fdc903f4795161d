"""Committed offsets: the table, OffsetCommit, TxnOffsetCommit, OffsetFetch and expiry."""
