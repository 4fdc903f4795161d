"""Reports lost records: as an error, or with `failOnDataLoss=false` as a warning."""

from __future__ import annotations

import logging

from lakelog.base.events import event
from lakelog.tables.topic.errors import DataLossError

_log = logging.getLogger("lakelog.spark")


def report_loss(what: str, *, fail: bool) -> None:
    """Raise `DataLossError` if `fail`; otherwise log a warning."""
    if fail:
        raise DataLossError(
            f"{what}. Set the option failOnDataLoss=false to continue without the lost records"
        )
    _log.warning("records are lost: %s", what, extra=event("records_lost"))
