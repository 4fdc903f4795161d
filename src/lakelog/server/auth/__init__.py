"""Identity and permissions of clients: principals, states of authentication, the authorizer.

Read `authentication.py` first. Clients are not authenticated yet: every listener is PLAINTEXT, and
its clients are `User:ANONYMOUS`. Brokers of a cluster prove their identity to each other
(`broker_proof.py`). Admission control (`server/requests/admission.py`) enforces the decisions.
"""
