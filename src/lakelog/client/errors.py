"""Errors of the client.

Each is a `KafkaError` with a code of the protocol. A subclass states the meaning of the code for
the caller and may have a `hint` with advice. A failed write raises one of two errors:
`NotWrittenError` (the record is not stored; it is safe to send it again) or `OutcomeUnknownError`
(the record may be stored; sending it again may store it twice).
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError, error_code
from lakelog.client.reasons import with_reason
from lakelog.dialogue.errors import DialogueError, InvalidResponseError, NoCommonVersionError

_IS_IT_RUNNING = "Is the broker running, and is this the address that it listens on?"


class ClientError(KafkaError):
    """An error with advice for the user: `hint` is one sentence, or empty."""

    def __init__(self, code: ErrorCode, message: str = "", *, hint: str = "") -> None:
        super().__init__(code, message)
        self.hint = hint

    @property
    def retriable(self) -> bool:
        """Whether it is safe to send the same request again."""
        return self.code.retriable


class UnreachableError(ClientError):
    """No connection to a broker; no request was sent."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        hint = "" if timed_out else _IS_IT_RUNNING
        code = ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.BROKER_NOT_AVAILABLE
        super().__init__(code, message, hint=hint)

    @classmethod
    def after(cls, error: ClientError) -> UnreachableError:
        """Return the error for a caller that has tried all brokers; `error` is the last failure."""
        return cls(error.message, timed_out=error.code is ErrorCode.REQUEST_TIMED_OUT)

    @property
    def is_timeout(self) -> bool:
        """Whether nothing answered in time; otherwise the connection was refused or broke."""
        return self.code is ErrorCode.REQUEST_TIMED_OUT

    @property
    def retriable(self) -> bool:
        """True: no request was sent, so a retry repeats nothing."""
        return True


class NotStartedError(UnreachableError):
    """No broker could be reached while it may have been starting; see `Startup`."""

    @property
    def retriable(self) -> bool:
        """False: the client has already retried for as long as a start may take."""
        return False


class ConnectionLostError(ClientError):
    """The connection broke or timed out with requests unanswered: their outcome is unknown."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION
        super().__init__(code, message)

    @property
    def retriable(self) -> bool:
        """False: the broker may have handled requests that have no response."""
        return False


class UnsupportedError(ClientError):
    """The broker and this client have no common version of an API."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ProtocolError(ClientError):
    """The peer sent an invalid response; the client closed the connection."""

    def __init__(self, message: str) -> None:
        hint = "Is the port that of a Kafka listener without TLS?"
        super().__init__(ErrorCode.INVALID_REQUEST, message, hint=hint)


def of_dialogue(error: DialogueError, where: str = "") -> ClientError:
    """Return the `ClientError` for an error of the dialogue; `where` names the peer."""
    message = f"{where}: {error.message}" if where else error.message
    if isinstance(error, InvalidResponseError):
        return ProtocolError(message)
    if isinstance(error, NoCommonVersionError):
        return UnsupportedError(message)
    return refused(error.code, where)


class _FinalError(ClientError):
    """An error that is not retriable although its code is: the client has already checked again."""

    @property
    def retriable(self) -> bool:
        return False


class UnreadableLogError(_FinalError):
    """A batch is damaged, and it is not known where the next one begins."""

    def __init__(self, message: str) -> None:
        hint = "Move the leadership to a replica with intact files, or delete these records."
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message, hint=hint)


class TopicNotFoundError(_FinalError):
    """The topic does not exist. `hint` may name a similar topic."""

    def __init__(self, topic: str, *, hint: str = "") -> None:
        message = f"topic {topic!r} does not exist"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, hint=hint)
        self.topic = topic


class PartitionNotFoundError(_FinalError):
    """The topic has fewer partitions."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        known = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        message = f"topic {topic!r} has {known}, not {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


class TopicRecreatedError(_FinalError):
    """The topic was deleted and created again: it has another id, and known offsets are invalid."""

    def __init__(self, topic: str) -> None:
        message = f"topic {topic!r} was deleted and created again since it was first read"
        super().__init__(ErrorCode.INCONSISTENT_TOPIC_ID, message)


class OffsetOutOfRangeError(ClientError):
    """The offset is not in the log, which has offsets from `log_start` to `log_end` (exclusive)."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        log_start: int,
        log_end: int,
        *,
        hint: str = "",
    ) -> None:
        message = (
            f"{topic}-{partition} has offsets {log_start} to {log_end} (exclusive), not {offset}"
        )
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class LogTruncatedError(_FinalError):
    """The log was cut below an offset that was read from it, and may have grown again since.

    offset: the next offset of the reader. diverged_at: the first offset whose record was lost or
    replaced; -1 if it is unknown.
    """

    def __init__(self, topic: str, partition: int, offset: int, diverged_at: int) -> None:
        place = f"at offset {diverged_at}" if diverged_at >= 0 else "somewhere"
        message = (
            f"the log of {topic}-{partition} was cut {place}, below offset {offset}, up to which "
            "it was read: the records from there on were lost or replaced"
        )
        hint = "Seek, or set auto_offset_reset to earliest or latest."
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message, hint=hint)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverged_at = diverged_at


class NotWrittenError(ClientError):
    """The record is definitely not in the log."""


class OutcomeUnknownError(ClientError):
    """The record may or may not be in the log; the change may or may not have been made."""

    @property
    def retriable(self) -> bool:
        """False: a second request could store a record twice, or fail because of the first."""
        return False


def check(code: int, where: str = "", said: str | None = None) -> None:
    """Raise `ClientError` unless `code` is 0. Unknown codes become UNKNOWN_SERVER_ERROR.

    Args:
        where: the subject of the request, for the message.
        said: the broker's own text, which replaces the message.
    """
    if code:
        raise refused(error_code(code), where, said)


def refused(code: ErrorCode, where: str, said: str | None = None) -> ClientError:
    """Return the `ClientError` for a code; arguments as for `check`."""
    return ClientError(code, said or with_reason(code, where))
