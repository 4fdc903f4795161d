"""The checker: a history of clients goes in, broken promises come out.

The rules follow Jepsen's tests of Kafka as they are described; availability is one more. The
checker knows nothing of brokers, only the responses to clients.
"""

from __future__ import annotations

from torture.anomalies import Anomaly, Kind
from torture.availability import check_availability, check_shown
from torture.history import History
from torture.offsets import check_offsets
from torture.places import Places
from torture.progress import check_progress
from torture.reading import check_reading
from torture.transactions import check_transactions


def check(history: History, deadline_s: float, session_s: float = float("inf")) -> list[Anomaly]:
    """Return all anomalies of a history.

    Args:
        history: all operations of a run.
        deadline_s: seconds after a healing in which each role has to succeed.
        session_s: the session timeout of the brokers: each partition has to acknowledge soon
            after it has passed since a fault of a minority.
    """
    positions = Places(history)
    return [
        *(Anomaly(Kind.ERROR, text) for text in history.errors),
        *positions.check(),
        *check_reading(history, positions),
        *check_transactions(history),
        *check_offsets(history),
        *check_progress(history, deadline_s),
        *check_availability(history, session_s),
        *check_shown(history, session_s),
    ]
