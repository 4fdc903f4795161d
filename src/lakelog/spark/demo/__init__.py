"""A demonstration of all of lakelog: from a log file to a Spark table.

It starts a broker, produces an access log line by line, parses it with a PySpark stream into a
second topic, and archives both topics into Iceberg. Two independent readers then prove that every
byte arrived. Run it with `python -m lakelog.spark.demo --input FILE`. Read `pipeline.py` first.
"""
