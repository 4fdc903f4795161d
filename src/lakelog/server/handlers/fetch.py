"""Fetch (1): returns record batches as they are stored, sent from the segment files.

A fetch is answered when it has found `min_bytes`, when a partition has an error, or after
`max_wait_ms`; until then it is parked on its partitions. The first partition with data returns at
least one whole batch, however large, so that a consumer can always proceed (KIP-74).

With `read_committed`, records end before the first open transaction, and the response lists the
aborted transactions among them, which consumers skip (KIP-98).

From version 12 on a request may have the epoch of the reader's last record. If the log does not
have that record, the response has the diverging offset at once, and no records (KIP-595).
"""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.fetch import FetchRequest, FetchResponse
from lakelog.replica.fetch_session import follower_of
from lakelog.server.auth.principal import is_broker
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.fast_path.fetch import cache_request
from lakelog.server.fetches.pending import FetchReply, PendingFetch
from lakelog.server.fetches.reading import READ_COMMITTED
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.server.served_api import ServedApi

_CODE_SINCE = 7


def handle(broker: Broker, context: Context, request: FetchRequest) -> FetchResponse | Deferred:
    """Answer at once, or park the fetch for up to `max_wait_ms` milliseconds.

    An error of the fetch session is the error of the response (KIP-227). Only the follower itself
    may fetch in its name: its position decides which records are committed.
    """
    follower = follower_of(request, context.version)
    if follower is not None and not is_broker(context.principal, follower.node_id):
        return refuse(broker, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    now = broker.clock.monotonic()
    try:
        plan = broker.fetch_sessions.begin(request, context.version, now)
    except KafkaError as error:
        return refuse(broker, context, request, error.code)
    committed = request.isolation_level == READ_COMMITTED
    reply = FetchReply(broker, context, plan, committed=committed)
    PendingFetch(broker, context, request, plan, reply, now, follower).start()
    return DEFERRED


def refuse(
    broker: Broker, context: Context, request: FetchRequest, code: ErrorCode
) -> FetchResponse:
    """Answer with the code alone.

    Raises `ProtocolViolation` before version 7, in which a response without partitions has no code.
    """
    if context.version < _CODE_SINCE:
        raise ProtocolViolation(f"Fetch v{context.version} is refused with {code.name}")
    broker.requests.errors["Fetch", code] += 1
    context.was_rejected = True
    return FetchResponse(error_code=code)


API = ServedApi(
    FetchRequest,
    handle,
    done="Sessions, long poll, topic ids, read_committed, diverging epochs.",
    missing="Followers: no preferred replica.",
    in_place=True,
    cache_request=cache_request,
    refuse=refuse,
    counts_errors=True,
)
