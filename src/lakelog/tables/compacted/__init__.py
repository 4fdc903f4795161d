"""The table of newest records: for each key of a topic the newest row of the topic's archive.

It is derived from the archive's table, never from the log, and is beside it in the same catalog.
`refresh.py` is the way of a refresh: `backlog.py` reads the rows that were archived since the last
one, divides them into the buckets of their keys, keeps the newest row of each key and writes the
new file of a bucket, and one commit exchanges the files and advances the progress. The archive
itself stays append-only, because one read needs it.
"""
