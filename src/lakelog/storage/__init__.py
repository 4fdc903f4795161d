"""Logs of partitions on disk, in the files and formats of Apache Kafka.

Read `log` first: it is one partition's log and owns all else. Then `segments.segment`, the files
that a log consists of, and `folder.directory`, the data folder with all logs. Nothing here waits:
what would block is a job for a thread (`preparation`, `flush`).

Storage knows neither requests nor replicas nor metadata. It does not import `protocol`: its files
have their own `struct`s.
"""
