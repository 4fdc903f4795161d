"""Errors of the operating system that pass without a restart: no space left, no descriptors left.

The call that raised one was not carried out. Every other `OSError` of a device leaves its outcome
unknown.
"""

from __future__ import annotations

import errno
import os
from typing import TypeGuard

from lakelog.base.errors import ErrorCode, KafkaError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = NO_SPACE | NO_DESCRIPTORS


def is_shortage(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether the failed call may be repeated once there is room again.

    Not for an fsync that reports ENOSPC: its pages may be lost.
    """
    return isinstance(error, OSError) and error.errno in _PASSING


def lacks_descriptors(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether the call failed before it reached the device, for want of a descriptor."""
    return isinstance(error, OSError) and error.errno in NO_DESCRIPTORS


def no_space(filename: str | None = None) -> OSError:
    """Return the ENOSPC that the operating system would raise."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), filename)


class OutOfRoomError(KafkaError):
    """KAFKA_STORAGE_ERROR of an operation that was definitely not carried out, for a shortage."""

    def __init__(self, error: OSError) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{error.strerror}; try again")
