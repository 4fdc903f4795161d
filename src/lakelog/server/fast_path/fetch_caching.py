"""Caches Fetch requests of one partition, of consumers and of followers."""

from __future__ import annotations

from lakelog.protocol.fetch import FetchRequest
from lakelog.replica.fetch_session import TOPIC_IDS_SINCE, follower_of
from lakelog.server.broker import Broker
from lakelog.server.connections.cached_request import CachedRequest
from lakelog.server.fast_path.fetch import CachedFetch
from lakelog.server.fast_path.fetch_frames import FetchKey
from lakelog.server.fast_path.partition_request import cache_partition_request
from lakelog.server.fetches.reading import ZSTD_SINCE
from lakelog.server.requests.context import Context


def cache_request(
    broker: Broker, last: CachedRequest | None, context: Context, request: FetchRequest
) -> CachedRequest | None:
    """As `cache_partition_request`. A request without topics belongs to the last one's session
    (KIP-227)."""
    if request.topics or request.forgotten_topics_data:
        key = _key(context, request)
        if key is None:
            return None
    else:
        key = _key_of_session(broker, last, context, request)
        if key is None:
            return last
    name = "" if isinstance(key.topic, bytes) else key.topic
    partition_key = key.topic, key.partition
    return cache_partition_request(
        CachedFetch, broker, last, context, key, partition_key, name, key.rack_id
    )


def _key(context: Context, request: FetchRequest) -> FetchKey | None:
    topics, version = request.topics, context.version
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or request.forgotten_topics_data
        or version < ZSTD_SINCE
        or request.replica_id >= 0  # only old followers name themselves so
    ):
        return None
    entry = topics[0].partitions[0]
    return FetchKey(
        context.client_id,
        version,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        topics[0].topic_id if version >= TOPIC_IDS_SINCE else topics[0].topic,
        entry.partition,
        entry.current_leader_epoch,
        entry.last_fetched_epoch,
        entry.log_start_offset,
        entry.partition_max_bytes,
        request.rack_id,
        request.replica_state.replica_id,
        request.replica_state.replica_epoch,
    )


def _key_of_session(
    broker: Broker, last: CachedRequest | None, context: Context, request: FetchRequest
) -> FetchKey | None:
    """Return the key of the request as if it named the session's only partition."""
    if isinstance(last, CachedFetch) and last.key.session_id == request.session_id:
        return last.key
    target = broker.fetch_sessions.only_target(request.session_id)
    is_follower = follower_of(request, context.version) is not None
    if target is None or is_follower or context.version < ZSTD_SINCE:
        return None
    return FetchKey(
        context.client_id,
        context.version,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        target.topic,
        target.partition,
        target.current_leader_epoch,
        target.last_fetched_epoch,
        -1,
        target.max_bytes,
        request.rack_id,
    )
