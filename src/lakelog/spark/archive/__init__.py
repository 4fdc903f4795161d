"""The Spark job that archives a topic: a streaming query whose rows are offset ranges.

`sync.py` has the entry point, `sync_topic`. `run.py` starts the query and restarts it after a
failure that may pass, through an interface of `engine.py`, which runs it in Spark; `stream.py` is
the query. The decisions (what to archive, how to commit) are in `lakelog.tables.archive`: this
package only runs them in Spark.
"""
