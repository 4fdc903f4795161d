"""Temporary errors of the operating system: no space left, no file descriptors left.

A call that raises one was not carried out. After any other `OSError` of a device the outcome of the
call is unknown.
"""

from __future__ import annotations

import errno
import os
from typing import TypeGuard

from lakelog.base.errors import ErrorCode, KafkaError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
SPACE_ADVICE = "delete topics or records, shorten retention or add space"
DESCRIPTORS_ADVICE = "raise the limit of its process (ulimit -n) or lower max.connections"
_PASSING = NO_SPACE | NO_DESCRIPTORS


def is_shortage(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether the failed call may be repeated when there is space again.

    Do not ask this about an fsync: after ENOSPC its pages may be lost.
    """
    return isinstance(error, OSError) and error.errno in _PASSING


def lacks_descriptors(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether the call failed for lack of a descriptor, before it reached the device."""
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTORS


def no_space(filename: str | None = None) -> OSError:
    """Return the ENOSPC that the operating system would raise."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), filename)


class OutOfCapacityError(KafkaError):
    """KAFKA_STORAGE_ERROR of an operation that was not carried out because of a shortage."""

    def __init__(self, error: OSError) -> None:
        advice = DESCRIPTORS_ADVICE if lacks_descriptors(error) else SPACE_ADVICE
        super().__init__(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the broker cannot write ({error.strerror}): {advice}"
        )
