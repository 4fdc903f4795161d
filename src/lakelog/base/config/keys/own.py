"""The broker keys that are lakelog's own, which begin with `lakelog.`, and keys of ZooKeeper.

Keys for a secured ZooKeeper ensemble have their names in Apache Kafka 3 (KIP-515). Kafka 4 has
removed them with ZooKeeper. Certificates and keys are files in PEM form (KIP-651).
"""

from __future__ import annotations

from lakelog.base.config.key import Validator
from lakelog.base.config.rows import parse_keys

OWN_KEYS = parse_keys(
    """
lakelog.slow.request.ms long 1000 -1.. cluster-wide
    Duration, in milliseconds, above which a request is logged with its client; -1 logs no request.
    The time that Fetch, JoinGroup and SyncGroup are meant to wait does not count.
lakelog.metadata.store string -
    The metadata store that several brokers share: sqlite:PATH or
    zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT, as in `lakelog serve --metadata`. Without a value,
    a file in the data folder, for this broker alone.
lakelog.disk.reserve.bytes long 8388608 0..
    Size, in bytes, of a file that reserves space in the data folder. On a full disk this space is
    freed for a start, for the deletion of topics and records, for retention and for changes of
    configuration; records are rejected until it is allocated again. 0 reserves nothing.
lakelog.producer.ids.max int 100000 100..
    Maximum number of idempotent producers whose sequence numbers are kept, in all partitions
    together; beyond it, the producers that have been idle for longest are forgotten.
lakelog.groups.max int 10000 1..
    Maximum number of groups with members or offsets; beyond it, new groups are rejected.
lakelog.group.subscriptions.max.bytes int 16777216 1..
    Maximum size, in bytes, of the subscriptions of all members of one group: the topics they
    subscribe to and the metadata of their assignors. Beyond it, members that would add to this are
    rejected.
lakelog.coordinator.state.max.bytes long 268435456 1048576..
    Estimated memory, in bytes, for the state that clients make the broker keep: group members and
    their assignments, offsets, transactional ids with their partitions, fetch sessions. Beyond it,
    no state may grow. One group or transactional id may take an eighth.
lakelog.transactional.ids.max int 100000 1..
    Maximum number of transactional ids; beyond it, new ones are rejected until some have expired
    (transactional.id.expiration.ms).
lakelog.metrics.compat boolean false cluster-wide
    Whether `/metrics` also contains the metrics of kafka_exporter and kafka-lag-exporter under
    their own names, for existing dashboards.
"""
)


ZOOKEEPER_KEYS = parse_keys(
    """
lakelog.zookeeper.digest.file string -
    File with USER:PASSWORD, by which the broker authenticates to ZooKeeper (scheme digest). Other
    users of the host may not have access to it.
zookeeper.set.acl boolean false
    Whether nodes that the broker creates in ZooKeeper are accessible only to brokers with the same
    digest or the same subject in their certificates.
zookeeper.ssl.client.enable boolean false
    Whether connections to ZooKeeper use TLS; lakelog.metadata.store then names secure ports.
zookeeper.ssl.truststore.location string -
    File with the certificates of the authorities of ZooKeeper's certificates; without one, the
    authorities of the operating system.
zookeeper.ssl.keystore.location string -
    File with the broker's private key and certificates, for servers that require them.
zookeeper.ssl.keystore.password password -
    Password of the private key, if it is encrypted.
zookeeper.ssl.endpoint.identification.algorithm string HTTPS
    HTTPS if ZooKeeper's certificates must have the names of the servers, else empty.
#- files are in PEM form
zookeeper.ssl.keystore.type string PEM
zookeeper.ssl.truststore.type string PEM
#- revocation lists are not supported
zookeeper.ssl.crl.enable boolean false
#- OCSP is not supported
zookeeper.ssl.ocsp.enable boolean false
""",
    {
        "zookeeper.ssl.endpoint.identification.algorithm": Validator(
            lambda value: value in ("", "HTTPS", "https"), "HTTPS, or nothing"
        )
    },
)
