"""The contents of a topic, and ranges of its offsets as rows of a table.

`client.py` has the questions to the cluster, `offsets.py` the values, and `rows.py` reads a range
from a log that may lose records meanwhile, as rows. Read `offsets.py` first. Nothing here writes,
and nothing knows Iceberg or Spark.
"""
