"""The segments of a log: files of record batches, and what is in memory about each.

Read `segment` first; `scan` walks a file's batch headers, `handles` limits the open files.
A segment knows nothing of the log that it belongs to, of producers or of leader epochs.
"""
