"""Archives a topic into an Iceberg table, each record exactly once.

A job runs in batches. Tasks fetch ranges of offsets and write Parquet files (`files.py`). A commit
adds the files and the new end offsets to the table in one transaction (`commit.py`). The table
holds the only progress: the state of the process that runs the job may be lost, or a predecessor
may still be dying, and no record is lost or repeated.

Read `progress.py` first (which batches the table accepts), then `commit.py` (how it accepts them),
`history.py` and `reconcile.py` (what stops a job) and `planner.py` (which offsets come next).
Nothing here starts tasks or repeats batches: that is the caller's work, as in
`lakelog.spark.archive`.
"""
