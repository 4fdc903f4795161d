"""The broker's replicas: partitions with their high watermarks, fetch sessions, the purgatory."""
