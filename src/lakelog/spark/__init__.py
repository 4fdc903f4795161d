"""PySpark's side of lakelog: the data source `lakelog`, its sink, and the archive job.

- `source/`: queries that read a topic.
- `sink.py`: queries that write to a topic.
- `archive/`: the job behind `lakelog table sync`.
- `session.py`: sessions whose workers find this Python.
- `demo/`: all of it in one run.

Read `source/readers.py` first; `pyspark_lakelog` is where Spark finds it. What needs no Spark is in
`lakelog.tables`: reading ranges of a topic, and the tables.
"""
