"""The declarations of all supported APIs of Kafka's protocol, one module for each family of APIs.

Read `groups.py` first, up to Heartbeat, a small API, then `api.py` and `registry.py`, which
collects all APIs. `consumer_protocol.py` declares the blobs inside JoinGroup and SyncGroup.

The modules hold no behaviour; `server/handlers/`, which has the same families, does.
"""
