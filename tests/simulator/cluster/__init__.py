"""A cluster of production brokers in a simulated world: its metadata, clients, faults and laws.

Start with `world.py`. It adds to the parts of a world with a single broker.
"""
