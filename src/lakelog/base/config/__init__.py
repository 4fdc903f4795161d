"""The configuration of brokers, topics and groups: keys, values, and the page that documents them.

Read `key.py` first, which declares a configuration key and parses its values. `keys/` holds the
tables of all keys. `broker_config.py` resolves the layers of a broker's settings, and
`log_config.py` the settings of a topic's logs. `properties.py` parses files in Java's format, and
`quantities.py` durations and sizes with units.

Nothing here reads a file or stores a value; `metadata/controller/configs.py` decides which changes
are accepted.
"""
