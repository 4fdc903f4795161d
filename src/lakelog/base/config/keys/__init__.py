"""The tables of configuration keys, each with its type, default, bounds, effect and description.

Read `topics.py` first. `honoured.py` holds Apache Kafka's broker keys that have an effect or are
refused, with those of compaction, consumer groups and transactions beside it; `inert.py` those that
are accepted without effect; `own.py` those of lakelog alone.

A table holds no value that anybody has set.
"""
