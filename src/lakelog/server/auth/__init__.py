"""Identity and permissions of clients: principals, states of authentication, the authorizer.

Read `authentication.py` first. Clients are not authenticated yet: every listener is PLAINTEXT, and
its clients are `User:ANONYMOUS`. Brokers of a cluster prove their identity to each other
(`broker_proof.py`). The gate (`server/requests/gate.py`) enforces the decisions.
"""
