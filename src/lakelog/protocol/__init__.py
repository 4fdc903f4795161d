"""The declarations of all supported APIs of Kafka's protocol, one module for each API.

Read `heartbeat.py` first, a small API, then `registry.py`, the table of all APIs and their
versions. `consumer_protocol.py` declares the blobs inside JoinGroup and SyncGroup.

The modules hold no behaviour; `server/handlers/` does.
"""
