"""The segments of a log: files of record batches, and the state in memory of each.

Read `segment` first; `scan` walks a file's batch headers, `handles` limits the open files.
A segment knows nothing of the log that it belongs to, of producers or of leader epochs.
"""
