"""The declarations of all supported APIs of Kafka's protocol, one module for each API.

Read `heartbeat.py` first, a small API, then `api.py` and `registry.py`, which collects all APIs.
`consumer_protocol.py` declares the blobs inside JoinGroup and SyncGroup.

The modules hold no behaviour; `server/handlers/` does.
"""
