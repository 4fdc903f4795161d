"""Copies the partitions that this broker follows from their leaders.

Start with `leader_session.py`: the requests to one leader and the meaning of its responses, without
I/O. `fetcher.py` sends these requests, and `replication.py` has one fetcher for each leader.
"""
