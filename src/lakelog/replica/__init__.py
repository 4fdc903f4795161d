"""The broker's replicas: partitions with their watermarks, fetch sessions and parked waits."""
