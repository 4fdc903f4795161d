"""What the client raises.

Everything is a `KafkaError` with the protocol's code; a subclass says what that means for the
caller and may carry a `hint` of what to do. Of a write that failed there are two kinds, and they
never mix: `NotWrittenError` (send it again, nothing was stored) and `OutcomeUnknownError` (it may
or may not be in the log; sending it again may store it twice).
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.client.reasons import with_reason

_IS_IT_RUNNING = "Is the broker running, and is this the address that it listens on?"


class ClientError(KafkaError):
    """A failure seen from the client's side; `hint` is one sentence of advice, or empty."""

    def __init__(self, code: ErrorCode, message: str = "", *, hint: str = "") -> None:
        super().__init__(code, message)
        self.hint = hint

    @property
    def retriable(self) -> bool:
        """Whether the same request may simply be sent again."""
        return self.code.retriable


class UnreachableError(ClientError):
    """No broker could be connected to; nothing was sent."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        hint = "" if timed_out else _IS_IT_RUNNING
        code = ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.BROKER_NOT_AVAILABLE
        super().__init__(code, message, hint=hint)

    @classmethod
    def after(cls, error: ClientError) -> UnreachableError:
        """Return the error for a caller that tried all brokers, the last of which ended so."""
        return cls(error.message, timed_out=error.code is ErrorCode.REQUEST_TIMED_OUT)

    @property
    def retriable(self) -> bool:
        return True


class ConnectionLostError(ClientError):
    """The connection broke or timed out with requests unanswered: their outcome is unknown."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION
        super().__init__(code, message)

    @property
    def retriable(self) -> bool:
        return False


class UnsupportedError(ClientError):
    """The broker does not speak a version of an API that this client needs."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ProtocolError(ClientError):
    """The peer sent bytes that are no answer to what was asked; the connection was closed."""

    def __init__(self, message: str) -> None:
        hint = "Is the port that of a Kafka listener without TLS?"
        super().__init__(ErrorCode.INVALID_REQUEST, message, hint=hint)


class _FinalError(ClientError):
    """Has a code that another try may cure, but is raised when that was looked into."""

    @property
    def retriable(self) -> bool:
        return False


class TopicNotFoundError(_FinalError):
    def __init__(self, topic: str, *, hint: str = "") -> None:
        message = f"topic {topic!r} does not exist"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, hint=hint)
        self.topic = topic


class PartitionNotFoundError(_FinalError):
    def __init__(self, topic: str, partition: int, count: int) -> None:
        known = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        message = f"topic {topic!r} has {known}, not {partition}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


class TopicRecreatedError(_FinalError):
    """The topic was deleted and made anew: its id is another one, its offsets mean nothing."""

    def __init__(self, topic: str) -> None:
        message = f"topic {topic!r} was deleted and created again since it was first read"
        super().__init__(ErrorCode.INCONSISTENT_TOPIC_ID, message)


class OffsetOutOfRangeError(ClientError):
    """The offset is not in the log, which reaches from `log_start` to before `log_end`."""

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

    offset: where the reader was. diverged_at: the first offset whose record is another one or gone;
    -1 if the log does not tell.
    """

    def __init__(self, topic: str, partition: int, offset: int, diverged_at: int) -> None:
        place = f"at offset {diverged_at}" if diverged_at >= 0 else "somewhere"
        message = (
            f"the log of {topic}-{partition} was cut {place}, below offset {offset} up to which it "
            "was read: the records from there on are lost, or others now"
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
    """The record may or may not be in the log."""


def check(code: int, where: str = "", said: str | None = None) -> None:
    """Raise `ClientError` unless `code` is 0. Codes unknown here are UNKNOWN_SERVER_ERROR.

    Args:
        where: what was asked about, for the message.
        said: the broker's own text, which replaces the message.
    """
    if code:
        raise refused(error_code(code), where, said)


def refused(code: ErrorCode, where: str, said: str | None = None) -> ClientError:
    """Return the error for a code; arguments as for `check`."""
    return ClientError(code, said or with_reason(code, where))


def error_code(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
