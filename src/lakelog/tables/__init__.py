"""The table engine: reads topics as columns and archives them into Iceberg tables.

It needs no Spark; Spark jobs (`lakelog.spark`) call it. PyIceberg is imported only here, and the
client is the only way to a broker. `lakelog.columns` decodes records. The rooms, from the bottom
up:

- `topic`: the contents of a topic, and ranges of its offsets as rows.
- `iceberg`: catalog, tables, data files and snapshots, without knowledge of topics.
- `typed`: the fields of JSON values as columns.
- `archive`: the progress of a topic in a table, and the batches that advance it.
- `hybrid`: one read over a topic's table and its log.
- `upkeep`: proof, compaction, expiry.

Read `archive/__init__.py` first. This package starts no process and runs no job by itself.
"""
