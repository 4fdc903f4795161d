"""Errors of the client, and descriptions of error codes.

Each is a `KafkaError` with a code of the protocol. A subclass states the meaning of the code for
the caller and may have a `hint` with advice. A failed write raises one of two errors:
`NotWrittenError` (the record is not stored; it is safe to send it again) or `OutcomeUnknownError`
(the record may be stored; sending it again may store it twice).

Many responses have a code without a text. With a description a message reads "group 'billing': the
group has members" instead of "group 'billing'".

Also the pauses between retries: they double from 50 ms to 1 s.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

from lakelog.base.errors import ErrorCode, KafkaError, error_code
from lakelog.base.events import event
from lakelog.network_client import InvalidResponseError, NetworkClientError, NoCommonVersionError

_E = ErrorCode

REASONS = {
    _E.TOPIC_ALREADY_EXISTS: "already exists",
    _E.UNKNOWN_TOPIC_OR_PARTITION: "the broker does not know this topic or partition",
    _E.UNKNOWN_TOPIC_ID: "the broker does not know this topic id",
    _E.INVALID_TOPIC_EXCEPTION: (
        "not a topic name (1 to 249 letters, digits, '.', '_' and '-'), or an internal topic"
    ),
    _E.INVALID_PARTITIONS: "invalid number of partitions",
    _E.INVALID_REPLICATION_FACTOR: "more replicas than brokers",
    _E.INVALID_REPLICA_ASSIGNMENT: "invalid assignment of replicas",
    _E.OFFSET_OUT_OF_RANGE: "the offset is not in the log",
    _E.OFFSET_NOT_AVAILABLE: "the leader does not know its high watermark yet",
    _E.POLICY_VIOLATION: "rejected by a policy of the topic or broker",
    _E.GROUP_ID_NOT_FOUND: "the group does not exist",
    _E.NON_EMPTY_GROUP: "the group has members",
    _E.UNKNOWN_MEMBER_ID: "the group does not know this member, or has other members",
    _E.ILLEGAL_GENERATION: "the group has rebalanced meanwhile",
    _E.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    _E.FENCED_INSTANCE_ID: "another member uses the same group.instance.id",
    _E.INCONSISTENT_GROUP_PROTOCOL: "the members share no assignor",
    _E.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group subscribe to the topic",
    _E.GROUP_MAX_SIZE_REACHED: "the group or the broker has reached its maximum size",
    _E.INVALID_GROUP_ID: "invalid group name; it must not be empty",
    _E.COORDINATOR_NOT_AVAILABLE: "the coordinator is not available",
    _E.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is loading",
    _E.NOT_COORDINATOR: "the broker is not its coordinator",
    _E.TRANSACTIONAL_ID_NOT_FOUND: "the transactional id does not exist",
    _E.INVALID_PRODUCER_ID_MAPPING: "the transactional id has another producer id, or has expired",
    _E.PRODUCER_FENCED: "a newer producer has taken over",
    _E.INVALID_PRODUCER_EPOCH: "a newer producer has taken over",
    _E.CONCURRENT_TRANSACTIONS: "the previous transaction is not complete yet",
    _E.INVALID_TXN_STATE: "the transaction is not in a state that allows it",
    _E.NETWORK_EXCEPTION: "the connection broke",
    _E.BROKER_NOT_AVAILABLE: "the broker is not available",
    _E.REQUEST_TIMED_OUT: "no answer in time",
    _E.LEADER_NOT_AVAILABLE: "no leader is available",
    _E.NOT_LEADER_OR_FOLLOWER: "the broker is not its leader",
    _E.REPLICA_NOT_AVAILABLE: "the broker has no replica of it",
    _E.KAFKA_STORAGE_ERROR: "the broker's disk failed or is full",
    _E.UNSUPPORTED_VERSION: "the broker does not support the request",
    _E.TOPIC_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.GROUP_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.CLUSTER_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed by the broker",
    _E.SASL_AUTHENTICATION_FAILED: "authentication failed",
    _E.INVALID_CONFIG: "invalid setting",
    _E.MESSAGE_TOO_LARGE: "larger than max.message.bytes of the topic",
    _E.RECORD_LIST_TOO_LARGE: "larger than a segment of the topic",
    _E.CORRUPT_MESSAGE: "wrong checksum",
    _E.INVALID_RECORD: "a record breaks a rule of the topic",
    _E.INVALID_TIMESTAMP: "a timestamp is too far from the present",
    _E.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not support the compression",
    _E.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "fewer replicas are in sync than min.insync.replicas",
}


def with_reason(code: ErrorCode, where: str) -> str:
    """Return the message for an error at `where`. Rare codes appear by Kafka's name."""
    reason = REASONS.get(code, code.name)
    return f"{where}: {reason}" if where else reason


_IS_IT_RUNNING = "Is the broker running, and is this the address that it listens on?"


class ClientError(KafkaError):
    """An error with advice for the user: `hint` is one sentence, or empty."""

    _is_safe_to_repeat: bool | None = None
    """Whether a class of errors is retriable; `None` if the code decides."""

    def __init__(self, code: ErrorCode, message: str = "", *, hint: str = "") -> None:
        super().__init__(code, message)
        self.hint = hint

    @property
    def retriable(self) -> bool:
        """Whether it is safe to send the same request again."""
        if self._is_safe_to_repeat is not None:
            return self._is_safe_to_repeat
        return self.code.retriable


class UnreachableError(ClientError):
    """No connection to a broker; no request was sent, so a retry repeats nothing."""

    _is_safe_to_repeat = True

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


class NotStartedError(UnreachableError):
    """No broker could be reached while it may have been starting; see `Startup`.

    The client has already retried for as long as a start may take.
    """

    _is_safe_to_repeat = False


class ConnectionLostError(ClientError):
    """The connection broke or timed out with requests unanswered: their outcome is unknown."""

    _is_safe_to_repeat = False

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION
        super().__init__(code, message)


class UnsupportedError(ClientError):
    """The broker and this client have no common version of an API."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ProtocolError(ClientError):
    """The peer sent an invalid response; the client closed the connection."""

    def __init__(self, message: str) -> None:
        hint = "Is the port that of a Kafka listener without TLS?"
        super().__init__(ErrorCode.INVALID_REQUEST, message, hint=hint)


def of_network_client(error: NetworkClientError, where: str = "") -> ClientError:
    """Return the `ClientError` for an error of the network client; `where` names the peer."""
    message = f"{where}: {error.message}" if where else error.message
    if isinstance(error, InvalidResponseError):
        return ProtocolError(message)
    if isinstance(error, NoCommonVersionError):
        return UnsupportedError(message)
    return refused(error.code, where)


class _FinalError(ClientError):
    """An error that is not retriable although its code is: the client has already checked again."""

    _is_safe_to_repeat = False


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
        partitions = "only partition 0" if count == 1 else f"partitions 0 to {count - 1}"
        message = f"topic {topic!r} has {partitions}, not {partition}"
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
        where = f"at offset {diverged_at}" if diverged_at >= 0 else "somewhere"
        message = (
            f"the log of {topic}-{partition} was cut {where}, below offset {offset}, up to which "
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
    """The record may or may not be in the log; the change may or may not have been made.

    A second request could store a record twice, or fail because of the first.
    """

    _is_safe_to_repeat = False


def outcome_unknown(what: str, error: ClientError) -> OutcomeUnknownError:
    """Return the error of a change, named by `what`, whose response did not come."""
    text = f"{what} may or may not have been done: {error.message}"
    return OutcomeUnknownError(error.code, text)


def check(code: int, where: str = "", said: str | None = None) -> None:
    """Raise `ClientError` unless `code` is 0. Unknown codes become UNKNOWN_SERVER_ERROR.

    Args:
        where: the subject of the request, for the message.
        said: the broker's own text, which replaces the message.
    """
    if code:
        raise refused(error_code(code), where, said)


def check_change(code: int, where: str, said: str | None) -> None:
    """Raise `ClientError` unless `code`, the result of a change, is 0; arguments as for `check`.

    Raises `OutcomeUnknownError` for REQUEST_TIMED_OUT: the broker may have made the change, or make
    it later.
    """
    if code == ErrorCode.REQUEST_TIMED_OUT:
        # The broker has answered: a longer wait for its answer would not help.
        hint = "Check whether the change has been made before you repeat it."
        text = f"{where}: {said or 'the change may or may not have been made'}"
        raise OutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, text, hint=hint)
    check(code, where, said)


def refused(code: ErrorCode, where: str, said: str | None = None) -> ClientError:
    """Return the `ClientError` for a code; arguments as for `check`."""
    return ClientError(code, said or with_reason(code, where))


_log = logging.getLogger(__name__)

FIRST_S = 0.05
LONGEST_S = 1.0


def pause_s(attempt: int) -> float:
    """Return the seconds to wait after failure number `attempt` (from 0)."""
    return float(min(FIRST_S * 2 ** min(attempt, 10), LONGEST_S))


def pauses() -> Iterator[float]:
    """Return an endless iterator of the pauses of one operation, in seconds."""
    return map(pause_s, itertools.count())


def log_retry(error: Exception, after_s: float) -> None:
    """Log a retry in `after_s` seconds."""
    _log.info("Retrying in %.2f s: %s", after_s, error, extra=event("retrying", after_s=after_s))
