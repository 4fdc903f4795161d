"""A Kafka-protocol commit log whose topics are also Spark tables.

PYTEST_DONT_REWRITE: with this word here pytest does not warn when it starts in a process that has
imported lakelog, and can no longer rewrite its assertions.
"""

__version__ = "0.1.0"
