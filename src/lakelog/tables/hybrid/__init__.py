"""One read over table and log: archived offsets from the table's files, the others from the broker.

A plan loads the table's metadata once. It has both the snapshot, whose files are read, and the ends
of the archive, so the boundary is exact. Plans hold offsets: a reader whose files were compacted or
whose log was trimmed meanwhile plans the remaining offsets again, on the newest snapshot.

Read `archives.py` first (the table of a topic, where a range is cut, and which files have it), then
`rows.py` (files into rows) and `client.py` (reading on when files or records have
gone). Nothing here writes to a table.
"""
