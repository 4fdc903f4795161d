"""Every metric by name; docs/monitoring.md has the same list."""

from __future__ import annotations

from lakelog.metrics import Family, Kind

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_PARTITION = ("topic", "partition")
_GROUP_TOPIC = ("group", "topic")
_GROUP_PARTITION = ("group", "topic", "partition")

# Each is (name without its prefix, kind, help, labels).
_OVERVIEW = (
    (
        "build_info",
        _G,
        "Always 1; the labels identify the broker.",
        ("version", "python", "cluster_id"),
    ),
    ("ready", _G, "1 if /readyz reports that the broker is ready, else 0.", ()),
    (
        "request_duration_seconds",
        _H,
        "Time from the start of a request's handling to its complete response, including waits for "
        "records, members or the log.",
        ("api",),
    ),
    ("request_errors_total", _C, "Error codes in responses.", ("api", "code")),
    ("produce_bytes_total", _C, "Bytes of record batches appended, as stored.", ("topic",)),
    ("fetch_bytes_total", _C, "Bytes of record batches in Fetch responses.", ("topic",)),
    ("records_total", _C, "Records appended; `op` is always `produce`.", ("topic", "op")),
    ("connections", _G, "Open connections, by the clients' software name.", ("client_software",)),
    (
        "peers",
        _G,
        "Other brokers in the metadata, by the result of the last call: connected, unreachable, or "
        "refused (another process has the address).",
        ("state",),
    ),
    ("connections_refused_total", _C, "Connections beyond a limit, closed at once.", ()),
    (
        "connections_closed_total",
        _C,
        "Connections closed because the client violated the protocol or a limit.",
        (),
    ),
    ("connections_expired_total", _C, "Connections closed because they were idle.", ()),
    ("request_memory_bytes", _G, "Memory of receive buffers and of batches being verified.", ()),
    (
        "request_memory_limit_bytes",
        _G,
        "Limit of lakelog_request_memory_bytes: queued.max.request.bytes.",
        (),
    ),
    ("request_memory_waiting", _G, "Connections that wait for request memory.", ()),
    (
        "waiting_requests_bytes",
        _G,
        "Upper bound of the memory of requests that wait for a response.",
        (),
    ),
    ("unread_responses_bytes", _G, "Memory of responses that clients have not read.", ()),
    ("parked_requests", _G, "Fetches that wait for records.", ()),
    ("fetch_sessions", _G, "Incremental fetch sessions.", ()),
    ("fetch_session_memory_bytes", _G, "Memory of all incremental fetch sessions.", ()),
    ("fetch_session_evictions_total", _C, "Unused fetch sessions evicted for new ones.", ()),
    ("topics", _G, "Topics.", ()),
    (
        "log_size_bytes",
        _G,
        "Size of the segment files of a topic's partitions on this broker.",
        ("topic",),
    ),
    (
        "retention_held_bytes",
        _G,
        "Expired segments that retention keeps because the topic's table lacks their records.",
        ("topic",),
    ),
    ("partitions", _G, "Partitions on this broker.", ()),
    ("led_partitions", _G, "Partitions led by this broker, whose logs can be used.", ()),
    ("offline_partitions", _G, "Partitions of this broker whose log cannot be used.", ()),
    (
        "under_replicated_partitions",
        _G,
        "Partitions led by this broker with a replica that is not in sync.",
        (),
    ),
    (
        "under_min_isr_partitions",
        _G,
        "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas: "
        "acks=all fails.",
        (),
    ),
    (
        "leaderless_partitions",
        _G,
        "Partitions of the cluster without a leader, in the metadata of this broker, or with this "
        "broker as the leader and an offline log.",
        (),
    ),
    (
        "offline_replicas",
        _G,
        "Replicas of the cluster whose log their broker cannot use, in the metadata of this "
        "broker: they lead nothing before that broker starts again.",
        (),
    ),
    (
        "replica_lag_records_max",
        _G,
        "Most records that a follower lacks of a partition led by this broker.",
        (),
    ),
    ("isr_shrinks_total", _C, "Times that replicas left an ISR led by this broker.", ()),
    ("isr_expansions_total", _C, "Times that replicas joined an ISR led by this broker.", ()),
    (
        "leader_elections_total",
        _C,
        "Times that this broker became the leader of a replicated partition.",
        (),
    ),
    (
        "election_duration_seconds",
        _H,
        "Time from the report of a dead broker to the commit of its successors, on the controller.",
        (),
    ),
    ("active_controller", _G, "1 if this broker is the controller, else 0.", ()),
    ("registered_brokers", _G, "Brokers in the metadata.", ()),
    ("fenced_brokers", _G, "Brokers in the metadata that are fenced: they lead no partition.", ()),
    (
        "shortage",
        _G,
        "1 while the broker lacks the resource: `disk` (space) or `descriptors`.",
        ("resource",),
    ),
    ("disk_size_bytes", _G, "Size of the file system that holds the data folder.", ()),
    ("disk_free_bytes", _G, "Space of that file system that the broker may still use.", ()),
    ("fsync_duration_seconds", _H, "Time of each fsync of a file or a folder.", ()),
    (
        "groups",
        _G,
        "Groups with members, and groups whose state is kept after their last member left.",
        (),
    ),
    ("groups_evicted_total", _C, "Groups without members evicted for new groups.", ()),
    (
        "state_memory_bytes",
        _G,
        "Estimated memory of groups, transactional ids and fetch sessions.",
        (),
    ),
    (
        "state_memory_limit_bytes",
        _G,
        "Limit of lakelog_state_memory_bytes: lakelog.coordinator.state.max.bytes.",
        (),
    ),
    ("transactional_ids", _G, "Known transactional ids.", ()),
    (
        "hanging_transactions_total",
        _C,
        "Transactions unknown to any coordinator that the broker ended.",
        (),
    ),
    ("group_members", _G, "Members of a group.", ("group",)),
    (
        "group_members_expired_total",
        _C,
        "Members removed after a session or rebalance timeout.",
        (),
    ),
    (
        "group_lag_records",
        _G,
        "Records after the committed offsets, summed over all partitions.",
        _GROUP_TOPIC,
    ),
    (
        "group_lag_seconds",
        _G,
        "Age of the group's position: time since the log ended there, for the partition with the "
        "largest lag; interpolated between scrapes.",
        _GROUP_TOPIC,
    ),
    ("event_loop_lag_seconds", _H, "Delay of a timer that fires four times a second.", ()),
    (
        "event_loop_longest_callback_seconds",
        _G,
        "The longest time that one callback held the event loop, in the last one to two minutes.",
        (),
    ),
    ("cleaner_rounds_total", _C, "Compactions of a log.", ()),
    ("cleaner_read_bytes_total", _C, "Bytes of segments read for compaction.", ()),
    ("cleaner_written_bytes_total", _C, "Bytes of compacted segments written.", ()),
    ("cleaner_helper_deaths_total", _C, "Compaction helper processes that died.", ()),
    (
        "cleaner_dirtiest_ratio",
        _G,
        "The largest uncompacted share of a log at the last check, 0 to 1.",
        (),
    ),
    (
        "cleaner_uncleanable_partitions",
        _G,
        "Logs excluded from compaction after a permanent failure.",
        (),
    ),
)

_DETAIL = (
    ("partition_log_start_offset", _G, "The first offset.", _PARTITION),
    ("partition_log_end_offset", _G, "The offset of the next record.", _PARTITION),
    ("partition_high_watermark", _G, "Where committed records end.", _PARTITION),
    ("partition_last_stable_offset", _G, "End of the decided transactions.", _PARTITION),
    ("partition_leader_epoch", _G, "It rises at each start of the leader.", _PARTITION),
    ("partition_log_size_bytes", _G, "Its segment files.", _PARTITION),
    ("partition_segments", _G, "Number of its segments.", _PARTITION),
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
    ("kafka_brokers", _G, "Brokers of the cluster that are not fenced.", ()),
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

CLUSTER_ALIASES = {
    "kafka_server_replicamanager_partitioncount": "partitions",
    "kafka_server_replicamanager_leadercount": "led_partitions",
    "kafka_server_replicamanager_offlinereplicacount": "offline_partitions",
    "kafka_server_replicamanager_underreplicatedpartitions": "under_replicated_partitions",
    "kafka_server_replicamanager_underminisrpartitioncount": "under_min_isr_partitions",
    "kafka_server_replicamanager_isrshrinks_total": "isr_shrinks_total",
    "kafka_server_replicamanager_isrexpands_total": "isr_expansions_total",
    "kafka_server_replicafetchermanager_maxlag": "replica_lag_records_max",
    "kafka_controller_kafkacontroller_activecontrollercount": "active_controller",
    "kafka_controller_kafkacontroller_offlinepartitionscount": "leaderless_partitions",
    "kafka_controller_kafkacontroller_fencedbrokercount": "fenced_brokers",
}
"""Kafka's MBeans, as Prometheus' JMX exporter names them, and the equal metrics of `OVERVIEW`."""

ELECTION_COUNT = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
_ELECTION_COUNT = (ELECTION_COUNT, _C, "As lakelog_election_duration_seconds_count.", ())

# The names that Prometheus' client libraries use.
_PROCESS = (
    ("process_cpu_seconds_total", _C, "Processor time of the broker, user and system.", ()),
    ("process_resident_memory_bytes", _G, "Resident memory of the broker.", ()),
    ("process_virtual_memory_bytes", _G, "Virtual memory of the broker.", ()),
    ("process_open_fds", _G, "Open file descriptors.", ()),
    ("process_max_fds", _G, "Largest number of open file descriptors.", ()),
    (
        "process_start_time_seconds",
        _G,
        "Start time of the broker, in seconds since the Unix epoch.",
        (),
    ),
)


def _own(rows: tuple[tuple[str, Kind, str, tuple[str, ...]], ...]) -> dict[str, Family]:
    return {
        name: Family(f"lakelog_{name}", kind, text, labels) for name, kind, text, labels in rows
    }


OVERVIEW = _own(_OVERVIEW) | {row[0]: Family(*row) for row in _PROCESS}
DETAIL = _own(_DETAIL)
COMPAT = {row[0]: Family(*row) for row in _COMPAT} | {
    alias: Family(alias, OVERVIEW[name].kind, f"As lakelog_{name}.", ())
    for alias, name in CLUSTER_ALIASES.items()
}
COMPAT[ELECTION_COUNT] = Family(*_ELECTION_COUNT)
