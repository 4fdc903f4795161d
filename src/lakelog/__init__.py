"""A Kafka-protocol commit log whose topics are also Spark tables."""

__version__ = "0.1.0"
