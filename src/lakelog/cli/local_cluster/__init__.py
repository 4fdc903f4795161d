"""A whole cluster on this host: broker processes, and a ZooKeeper ensemble if wanted.

`running.py` is `lakelog dev --brokers N` and `lakelog serve --workers N`, `supervisor.py` runs the
processes, and `ensemble.py` runs ZooKeeper from the jars that PySpark contains. Every process ends
with the process that started it, however that ends.
"""
