"""The transaction coordinator (KIP-98, KIP-360, KIP-890): who may write, and what of it counts.

Its state is replayed from `__transaction_state`; partitions learn the outcome by markers.
"""
