"""From a log file to a Spark table: the whole of lakelog in one run.

Starts a broker, produces an access log line by line, parses it with a PySpark stream into a second
topic, archives both topics into Iceberg, and then proves by two independent readers that every
byte arrived. Run it with `python -m lakelog.spark.demo --input FILE`.
"""
