"""The tables of configuration keys, each with its type, default, bounds, effect and description.

Read `topics.py` first. Broker keys of Apache Kafka with an effect are in the module of their
subject, such as `logs.py`. `inert.py` holds keys without effect and keys of which only the default
is accepted, and `own.py` lakelog's own keys and keys of ZooKeeper.

A table holds declarations only, not the values of a broker. Its rows have the form that
`lakelog.base.config.rows` describes.
"""
