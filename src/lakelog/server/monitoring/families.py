"""Every metric by name; docs/monitoring.md has the same list."""

from __future__ import annotations

from lakelog.metrics.exposition import Family, Kind

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_PARTITION = ("topic", "partition")
_GROUP_TOPIC = ("group", "topic")
_GROUP_PARTITION = ("group", "topic", "partition")

# Each is (name without its prefix, kind, help, labels).
_OVERVIEW = (
    ("build_info", _G, "Always 1; the labels say what runs.", ("version", "python", "cluster_id")),
    ("ready", _G, "1 if /readyz says that the broker is ready, else 0.", ()),
    (
        "request_duration_seconds",
        _H,
        "From when a request's turn came to when its response was complete, waits for records, "
        "members or the log included.",
        ("api",),
    ),
    ("request_errors_total", _C, "Error codes in responses.", ("api", "code")),
    ("produce_bytes_total", _C, "Bytes of record batches appended, as stored.", ("topic",)),
    ("fetch_bytes_total", _C, "Bytes of record batches answered to fetches.", ("topic",)),
    ("records_total", _C, "Records appended; there is no other op yet.", ("topic", "op")),
    ("connections", _G, "Open connections, by what clients say they are.", ("client_software",)),
    ("connections_refused_total", _C, "Connections beyond a limit, closed at once.", ()),
    ("connections_closed_total", _C, "Connections closed for what their peer did.", ()),
    ("connections_expired_total", _C, "Connections closed for their silence.", ()),
    ("request_memory_bytes", _G, "Receive buffers, and batches that are looked into.", ()),
    ("request_memory_limit_bytes", _G, "What they may take: queued.max.request.bytes.", ()),
    ("request_memory_waiting", _G, "Connections that wait for some of it.", ()),
    ("waiting_requests_bytes", _G, "What requests that wait for an answer take, at most.", ()),
    ("unread_responses_bytes", _G, "What responses take that peers have not read.", ()),
    ("parked_requests", _G, "Fetches that wait for records.", ()),
    ("fetch_sessions", _G, "Incremental fetch sessions.", ()),
    ("fetch_session_memory_bytes", _G, "Memory of the partitions in them.", ()),
    ("fetch_session_evictions_total", _C, "Unused sessions that made room for others.", ()),
    ("topics", _G, "Topics.", ()),
    ("partitions", _G, "Partitions on this broker.", ()),
    ("log_size_bytes", _G, "Segment files of a topic's partitions here.", ("topic",)),
    ("offline_partitions", _G, "Partitions here whose log cannot be used.", ()),
    ("under_replicated_partitions", _G, "Partitions with a replica that is not in sync.", ()),
    (
        "shortage",
        _G,
        "1 while the broker is short of it: space (disk) or file descriptors.",
        ("resource",),
    ),
    ("disk_size_bytes", _G, "Size of the file system that holds the data folder.", ()),
    ("disk_free_bytes", _G, "What of it the broker may still use.", ()),
    ("fsync_duration_seconds", _H, "Each fsync of a file or a folder.", ()),
    ("groups", _G, "Groups with members, or that have had some and are not forgotten.", ()),
    ("groups_evicted_total", _C, "Groups without members that made room for others.", ()),
    ("state_memory_bytes", _G, "Groups, transactional ids and fetch sessions, by estimate.", ()),
    ("state_memory_limit_bytes", _G, "lakelog.coordinator.state.max.bytes.", ()),
    ("transactional_ids", _G, "Transactional ids that are remembered.", ()),
    (
        "hanging_transactions_total",
        _C,
        "Transactions nobody knew of, found and ended at a start.",
        (),
    ),
    ("group_members", _G, "Members of a group.", ("group",)),
    ("group_members_expired_total", _C, "Members dropped for their silence or slowness.", ()),
    ("group_lag_records", _G, "Records not committed yet, of all partitions.", _GROUP_TOPIC),
    (
        "group_lag_seconds",
        _G,
        "How long ago the log ended where the group is now, of the partition with the most; "
        "interpolated between scrapes.",
        _GROUP_TOPIC,
    ),
    ("event_loop_lag_seconds", _H, "How late a timer came, four times a second.", ()),
    (
        "event_loop_longest_callback_seconds",
        _G,
        "The longest time in the last one to two minutes for which one thing kept the loop.",
        (),
    ),
    ("cleaner_rounds_total", _C, "Compactions of a log.", ()),
    ("cleaner_read_bytes_total", _C, "Segments read to be compacted.", ()),
    ("cleaner_written_bytes_total", _C, "Segments written in their place.", ()),
    ("cleaner_helper_deaths_total", _C, "Helper processes that died.", ()),
    ("cleaner_dirtiest_ratio", _G, "The largest uncompacted share of a log when last looked.", ()),
    ("cleaner_uncleanable_partitions", _G, "Logs that are not compacted any more.", ()),
)

_DETAIL = (
    ("partition_log_start_offset", _G, "The first offset.", _PARTITION),
    ("partition_log_end_offset", _G, "The offset of the next record.", _PARTITION),
    ("partition_high_watermark", _G, "Where committed records end.", _PARTITION),
    ("partition_last_stable_offset", _G, "Where decided transactions end.", _PARTITION),
    ("partition_leader_epoch", _G, "It rises at each start of the leader.", _PARTITION),
    ("partition_log_size_bytes", _G, "Its segment files.", _PARTITION),
    ("partition_segments", _G, "How many there are.", _PARTITION),
    ("partition_producers", _G, "Producers whose sequences are remembered.", _PARTITION),
    ("partition_produce_bytes_total", _C, "As lakelog_produce_bytes_total.", _PARTITION),
    ("partition_fetch_bytes_total", _C, "As lakelog_fetch_bytes_total.", _PARTITION),
    ("partition_records_total", _C, "Records appended.", _PARTITION),
    ("group_committed_offset", _G, "The offset that the group reads next.", _GROUP_PARTITION),
    ("group_partition_lag_records", _G, "Records not committed yet.", _GROUP_PARTITION),
    ("group_partition_lag_seconds", _G, "As lakelog_group_lag_seconds.", _GROUP_PARTITION),
)

_KAFKA_GROUP = ("consumergroup", "topic", "partition")

# Names, labels and meanings of kafka_exporter 1.9 and of kafka-lag-exporter 0.8.
_COMPAT = (
    ("kafka_brokers", _G, "Brokers of the cluster.", ()),
    ("kafka_topic_partitions", _G, "Partitions of a topic.", ("topic",)),
    ("kafka_topic_partition_current_offset", _G, "The offset of the next record.", _PARTITION),
    ("kafka_topic_partition_oldest_offset", _G, "The first offset.", _PARTITION),
    ("kafka_topic_partition_in_sync_replica", _G, "Replicas in sync.", _PARTITION),
    (
        "kafka_topic_partition_under_replicated_partition",
        _G,
        "1 if a replica is not in sync.",
        _PARTITION,
    ),
    ("kafka_consumergroup_members", _G, "Members of a group.", ("consumergroup",)),
    ("kafka_consumergroup_current_offset", _G, "The committed offset.", _KAFKA_GROUP),
    ("kafka_consumergroup_lag", _G, "Records not committed yet.", _KAFKA_GROUP),
    (
        "kafka_consumergroup_group_lag_seconds",
        _G,
        "As lakelog_group_lag_seconds.",
        ("cluster_name", *_GROUP_PARTITION),
    ),
)

# Prometheus' own names, those of its client libraries.
_PROCESS = (
    ("process_cpu_seconds_total", _C, "Processor time of the broker, user and system.", ()),
    ("process_resident_memory_bytes", _G, "Resident memory of the broker.", ()),
    ("process_virtual_memory_bytes", _G, "Virtual memory of the broker.", ()),
    ("process_open_fds", _G, "Open file descriptors.", ()),
    ("process_max_fds", _G, "Most file descriptors that may be open.", ()),
    ("process_start_time_seconds", _G, "When the broker started, since the Unix epoch.", ()),
)


def _own(rows: tuple[tuple[str, Kind, str, tuple[str, ...]], ...]) -> dict[str, Family]:
    return {
        name: Family(f"lakelog_{name}", kind, text, labels) for name, kind, text, labels in rows
    }


OVERVIEW = _own(_OVERVIEW) | {row[0]: Family(*row) for row in _PROCESS}
DETAIL = _own(_DETAIL)
COMPAT = {row[0]: Family(*row) for row in _COMPAT}
