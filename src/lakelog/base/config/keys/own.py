"""The broker keys that are lakelog's own; their names begin with `lakelog.`."""

from __future__ import annotations

from lakelog.base.config.key import ConfigKey, ConfigType, UpdateMode, at_least

OWN_KEYS = (
    ConfigKey(
        "lakelog.slow.request.ms",
        ConfigType.LONG,
        "1000",
        "Duration, in milliseconds, above which a request is logged with its client; -1 logs no "
        "request. The time that Fetch, JoinGroup and SyncGroup are meant to wait does not count.",
        at_least(-1),
        UpdateMode.CLUSTER_WIDE,
    ),
    ConfigKey(
        "lakelog.metadata.store",
        ConfigType.STRING,
        None,
        "The metadata store that several brokers share: sqlite:PATH or "
        "zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT, as in `lakelog serve --metadata`. Without a "
        "value, a file in the data folder, for this broker alone.",
        None,
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.disk.reserve.bytes",
        ConfigType.LONG,
        "8388608",
        "Size, in bytes, of a file that reserves space in the data folder. On a full disk this "
        "space is freed for a start, for the deletion of topics and records, for retention and for "
        "changes of configuration; records are rejected until it is allocated again. 0 reserves "
        "nothing.",
        at_least(0),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.producer.ids.max",
        ConfigType.INT,
        "100000",
        "Maximum number of idempotent producers whose sequence numbers are kept, in all partitions "
        "together; beyond it, the producers that have been idle for longest are forgotten.",
        at_least(100),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.groups.max",
        ConfigType.INT,
        "10000",
        "Maximum number of groups with members or offsets; beyond it, new groups are rejected.",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.group.subscriptions.max.bytes",
        ConfigType.INT,
        "16777216",
        "Maximum size, in bytes, of the subscriptions of all members of one group: the topics they "
        "subscribe to and the metadata of their assignors. Beyond it, members that would add to "
        "this are rejected.",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.coordinator.state.max.bytes",
        ConfigType.LONG,
        "268435456",
        "Estimated memory, in bytes, for the state that clients make the broker keep: group "
        "members and their assignments, offsets, transactional ids with their partitions, fetch "
        "sessions. Beyond it, no state may grow. One group or transactional id may take an eighth.",
        at_least(1 << 20),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.transactional.ids.max",
        ConfigType.INT,
        "100000",
        "Maximum number of transactional ids; beyond it, new ones are rejected until some have "
        "expired (transactional.id.expiration.ms).",
        at_least(1),
        UpdateMode.READ_ONLY,
    ),
    ConfigKey(
        "lakelog.metrics.compat",
        ConfigType.BOOLEAN,
        "false",
        "Whether `/metrics` also contains the metrics of kafka_exporter and kafka-lag-exporter "
        "under their own names, for existing dashboards.",
        None,
        UpdateMode.CLUSTER_WIDE,
    ),
)
