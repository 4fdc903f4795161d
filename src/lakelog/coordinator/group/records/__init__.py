"""The records of `__consumer_offsets`: offsets, classic groups, consumer groups, their codec."""
