"""The tables of configuration keys, each with its type, default, bounds, effect and description.

Read `topics.py` first. The broker keys of Apache Kafka with an effect, and the rejected ones, are
in `honoured.py`, and by subject in `cleaner.py`, `consumer_groups.py` and `transactions.py`.
`inert.py` holds the broker keys that are accepted without effect, and `own.py` lakelog's own keys.

A table holds declarations only, not the values of a broker.
"""
