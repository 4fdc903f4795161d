"""The contents of a topic, and ranges of its offsets as rows of a table.

`client.py` has the questions to the cluster, `offsets.py` and `ranges.py` the values, `reading.py`
reads a range from a log that may lose records meanwhile, and `rows.py` makes rows of it. Read
`ranges.py` first. Nothing here writes, and nothing knows Iceberg or Spark.
"""
