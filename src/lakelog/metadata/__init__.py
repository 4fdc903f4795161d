"""The metadata log: an ordered log of records, and the image of the cluster that they lead to.

Read `records.py` first, then `image.py`. `controller/` turns requests into records; `log.py`
commits them and publishes each new image; `store/` keeps the log. `describe_configs.py` resolves
the settings in force for DescribeConfigs.

Only `log.py` and `store/` do I/O. Nothing here creates or removes the files of topics; subscribers
of the log do (`server/topics/`).
"""
