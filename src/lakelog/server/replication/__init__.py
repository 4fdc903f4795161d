"""Copies the partitions that this broker follows from their leaders.

Start with `leader_session.py`: the requests to one leader and the meaning of its responses, without
I/O. `replica_fetcher.py` sends these requests, with one fetcher for each leader.
"""
