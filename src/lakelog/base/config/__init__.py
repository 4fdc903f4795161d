"""The configuration of brokers, topics and groups: keys, values, and the page that documents them.

Read `key.py` first: what a configuration key is, and how its text becomes a value. `keys/` holds
the tables, one key declared once. `broker_config.py` resolves a broker's layers of settings and
`log_config.py` those of a topic's logs. Files in Java's format are read by `properties.py`, and
durations and sizes as people write them by `quantities.py`.

Nothing here reads a file or stores a value; `metadata/controller/configs.py` decides which changes
are accepted.
"""
