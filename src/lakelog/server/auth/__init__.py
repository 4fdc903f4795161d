"""Who a client is, and what it may do: principals, the state of authentication, the authorizer.

Read `authentication.py` first. Clients are not authenticated yet: every listener is PLAINTEXT, and
its clients are `User:ANONYMOUS`. The gate (`server/requests/gate.py`) enforces the decisions.
"""
