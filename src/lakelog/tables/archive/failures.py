"""Failures of an archive job: final and transient errors, and the wait for a lost broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import SQLAlchemyError

from lakelog.base.errors import KafkaError
from lakelog.client.errors import ConnectionLostError, UnreachableError, pauses
from lakelog.tables.archive.dead_letters import DeadLettersError
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.archive.progress import (
    ForeignTableError,
    ProgressConflictError,
    ProgressFormatError,
)
from lakelog.tables.iceberg.address import TableReplacedError
from lakelog.tables.iceberg.catalog import CatalogUnwritableError
from lakelog.tables.iceberg.data_file import FolderUnwritableError
from lakelog.tables.registry.client import RegistryAccessError, RegistryUnavailableError
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import (
    BadRecordError,
    DataLossError,
    TopicGoneError,
    TopicMissingError,
)

FINAL = (
    DataLossError,
    TopicGoneError,
    BadRecordError,
    TopicMissingError,
    ProgressMismatchError,
    ProgressFormatError,
    ForeignTableError,
    TableReplacedError,
    DeadLettersError,
    CatalogUnwritableError,
    FolderUnwritableError,
    RegistryAccessError,
)
"""Errors that end the job.

Errors of Spark's processes arrive as text, which is matched by class name, not by subclass. So the
subclasses `LogDivergedError` and `LogReplacedError` of `DataLossError` do not end the job: it
restarts, and the reconciliation decides about them.
"""
PASSING = (
    KafkaError,
    ProgressConflictError,
    CommitFailedException,
    SQLAlchemyError,
    OSError,
    RegistryUnavailableError,
)
"""Errors after which a new attempt may succeed."""


class SyncError(Exception):
    """The archive job cannot continue, for the reason in the text."""


_PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether all partitions of a topic can be read.

    limit_s: the longest time to wait for one outage, in seconds; `None` waits without a limit.
    notice: is called with each line for the user.
    """

    bootstrap: str
    topic: str
    limit_s: float | None
    notice: Callable[[str], None]

    def wait(self, stop: threading.Event) -> bool:
        """Wait until all partitions of the topic can be read or `stop` is set.

        Return whether there was an outage. Raises `UnreachableError` if it exceeds `limit_s`.
        """
        absence = self._absence()
        if not absence:
            return False
        limit = "until it returns" if self.limit_s is None else f"up to {self.limit_s:g} s"
        self.notice(f"{self.topic}: {absence}; waiting {limit}")
        deadline = None if self.limit_s is None else time.monotonic() + self.limit_s
        for pause in pauses():
            if stop.wait(pause):
                return True
            absence = self._absence()
            if not absence:
                self.notice(f"{self.topic}: the broker answers again")
                return True
            if deadline is not None and time.monotonic() >= deadline:
                raise UnreachableError(
                    f"after waiting {self.limit_s:g} s: {absence}; the table has all "
                    "earlier commits"
                )
        raise AssertionError("pauses never end")

    def _absence(self) -> str:
        """Return why the topic cannot be read, or an empty text.

        The leaders are asked too, because a broker may answer while a partition is offline.
        """
        name = "lakelog-archive"
        try:
            with TopicClient(self.bootstrap, client_id=name, timeout_s=_PROBE_S) as client:
                meta = client.describe([self.topic])[self.topic]
                client.latest([(self.topic, partition) for partition in meta.partitions])
        except TopicMissingError:
            return ""
        except (UnreachableError, ConnectionLostError, OSError):
            return f"no broker answers at {self.bootstrap}"
        except KafkaError as error:
            return str(error)
        return ""
