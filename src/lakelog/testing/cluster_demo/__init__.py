"""`make demo-cluster`: three brokers over ZooKeeper lose processes under load, and no record.

`demo.py` is the story, `load.py` the producer and its proof.
"""
