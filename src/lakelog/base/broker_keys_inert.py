"""Apache Kafka's broker keys that are accepted without effect, each group under its reason.

A row is: name, type, default (`-` is null, `""` is empty), and where Kafka lets it change while
running. Listed so that a migrated `server.properties` is understood whole, and a mistyped value
is still told. Facts: `AbstractKafkaConfig.CONFIG_DEF` and `DynamicBrokerConfig` of 4.3.1.
"""

from __future__ import annotations

from lakelog.base.config import ConfigKey, ConfigType, Effect, UpdateMode

_TABLE = """
# all checkpoints are written at replica.high.watermark.checkpoint.interval.ms
log.flush.offset.checkpoint.interval.ms int 60000
log.flush.start.offset.checkpoint.interval.ms int 60000
# no listener speaks TLS
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.cipher.suites list "" per-broker
ssl.client.auth string none per-broker
ssl.enabled.protocols list TLSv1.2,TLSv1.3 per-broker
ssl.endpoint.identification.algorithm string https per-broker
ssl.engine.factory.class class - per-broker
ssl.key.password password - per-broker
ssl.keymanager.algorithm string SunX509 per-broker
ssl.keystore.certificate.chain password - per-broker
ssl.keystore.key password - per-broker
ssl.keystore.location string - per-broker
ssl.keystore.password password - per-broker
ssl.keystore.type string JKS per-broker
ssl.principal.mapping.rules string DEFAULT
ssl.protocol string TLSv1.3 per-broker
ssl.provider string - per-broker
ssl.secure.random.implementation string - per-broker
ssl.trustmanager.algorithm string PKIX per-broker
ssl.truststore.certificates password - per-broker
ssl.truststore.location string - per-broker
ssl.truststore.password password - per-broker
ssl.truststore.type string JKS per-broker
# no listener speaks SASL
connection.failed.authentication.delay.ms int 100
connections.max.reauth.ms long 0
delegation.token.expiry.check.interval.ms long 3600000
delegation.token.expiry.time.ms long 86400000
delegation.token.max.lifetime.ms long 604800000
delegation.token.secret.key password -
principal.builder.class class - per-broker
sasl.client.callback.handler.class class -
sasl.enabled.mechanisms list GSSAPI per-broker
sasl.jaas.config password - per-broker
sasl.kerberos.kinit.cmd string /usr/bin/kinit per-broker
sasl.kerberos.min.time.before.relogin long 60000 per-broker
sasl.kerberos.principal.to.local.rules list DEFAULT per-broker
sasl.kerberos.service.name string - per-broker
sasl.kerberos.ticket.renew.jitter double 0.05 per-broker
sasl.kerberos.ticket.renew.window.factor double 0.8 per-broker
sasl.login.callback.handler.class class -
sasl.login.class class -
sasl.login.connect.timeout.ms int -
sasl.login.read.timeout.ms int -
sasl.login.refresh.buffer.seconds short 300 per-broker
sasl.login.refresh.min.period.seconds short 60 per-broker
sasl.login.refresh.window.factor double 0.8 per-broker
sasl.login.refresh.window.jitter double 0.05 per-broker
sasl.login.retry.backoff.max.ms long 10000
sasl.login.retry.backoff.ms long 100
sasl.mechanism.controller.protocol string GSSAPI
sasl.mechanism.inter.broker.protocol string GSSAPI per-broker
sasl.oauthbearer.assertion.algorithm string RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60
sasl.oauthbearer.assertion.claim.sub string -
sasl.oauthbearer.assertion.file string -
sasl.oauthbearer.assertion.private.key.file string -
sasl.oauthbearer.assertion.private.key.passphrase password -
sasl.oauthbearer.assertion.template.file string -
sasl.oauthbearer.client.credentials.client.id string -
sasl.oauthbearer.client.credentials.client.secret password -
sasl.oauthbearer.clock.skew.seconds int 30
sasl.oauthbearer.expected.audience list ""
sasl.oauthbearer.expected.issuer string -
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100
sasl.oauthbearer.jwks.endpoint.url string -
sasl.oauthbearer.jwt.retriever.class class -
sasl.oauthbearer.jwt.validator.class class -
sasl.oauthbearer.scope string -
sasl.oauthbearer.scope.claim.name string scope
sasl.oauthbearer.sub.claim.name string sub
sasl.oauthbearer.token.endpoint.url string -
sasl.server.callback.handler.class class -
sasl.server.max.receive.size int 524288
security.providers string -
# there is no tiered storage
follower.fetch.last.tiered.offset.enable boolean false cluster-wide
log.local.retention.bytes long -2 cluster-wide
log.local.retention.ms long -2 cluster-wide
remote.fetch.max.wait.ms int 500 cluster-wide
remote.list.offsets.request.timeout.ms long 30000 cluster-wide
remote.log.index.file.cache.total.size.bytes long 1073741824 cluster-wide
remote.log.manager.copier.thread.pool.size int 10 cluster-wide
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 cluster-wide
remote.log.manager.copy.quota.window.num int 11
remote.log.manager.copy.quota.window.size.seconds int 1
remote.log.manager.expiration.thread.pool.size int 10 cluster-wide
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 cluster-wide
remote.log.manager.fetch.quota.window.num int 11
remote.log.manager.fetch.quota.window.size.seconds int 1
remote.log.manager.follower.thread.pool.size int 2 cluster-wide
remote.log.manager.task.interval.ms long 30000
remote.log.manager.thread.pool.size int 2
remote.log.metadata.custom.metadata.max.bytes int 128
remote.log.metadata.manager.class.name string -
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100
remote.log.reader.threads int 10 cluster-wide
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config.
# a transaction's coordinator is asked without leaving the process
add.partitions.to.txn.retry.backoff.max.ms int 100
add.partitions.to.txn.retry.backoff.ms int 20
# a transaction is aborted at its timeout, not by a scan
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000
# logs of coordinators are read in steps of 1 MiB
transaction.state.log.load.buffer.size int 5242880
# groups speak the classic protocol
group.consumer.assignment.interval.ms int 1000 cluster-wide
group.consumer.assignors list uniform,range
group.consumer.heartbeat.interval.ms int 5000
group.consumer.max.assignment.interval.ms int 15000
group.consumer.max.heartbeat.interval.ms int 15000
group.consumer.max.session.timeout.ms int 60000
group.consumer.max.size int 2147483647
group.consumer.migration.policy string bidirectional
group.consumer.min.assignment.interval.ms int 0
group.consumer.min.heartbeat.interval.ms int 5000
group.consumer.min.session.timeout.ms int 45000
group.consumer.session.timeout.ms int 45000
# there are no share groups
group.share.assignment.interval.ms int 1000 cluster-wide
group.share.assignors list simple
group.share.delivery.count.limit int 5
group.share.heartbeat.interval.ms int 5000
group.share.max.assignment.interval.ms int 15000
group.share.max.delivery.count.limit int 10
group.share.max.heartbeat.interval.ms int 15000
group.share.max.partition.max.record.locks int 4000
group.share.max.record.lock.duration.ms int 60000
group.share.max.session.timeout.ms int 60000
group.share.max.share.sessions int 2000
group.share.max.size int 200
group.share.min.assignment.interval.ms int 0
group.share.min.delivery.count.limit int 2
group.share.min.heartbeat.interval.ms int 5000
group.share.min.partition.max.record.locks int 100
group.share.min.record.lock.duration.ms int 15000
group.share.min.session.timeout.ms int 45000
group.share.partition.max.record.locks int 2000
group.share.record.lock.duration.ms int 30000
group.share.session.timeout.ms int 45000
share.coordinator.append.linger.ms int -1
share.coordinator.cached.buffer.max.bytes int 1048588 cluster-wide
share.coordinator.load.buffer.size int 5242880
share.coordinator.snapshot.update.records.per.snapshot int 500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 1
share.coordinator.state.topic.num.partitions int 50
share.coordinator.state.topic.replication.factor short 1
share.coordinator.state.topic.segment.bytes int 104857600
share.coordinator.threads int 1
share.coordinator.write.timeout.ms int 5000
share.fetch.purgatory.purge.interval.requests int 1000
# there are no streams groups
group.streams.assignment.interval.ms int 1000 cluster-wide
group.streams.heartbeat.interval.ms int 5000
group.streams.initial.rebalance.delay.ms int 3000
group.streams.max.assignment.interval.ms int 15000
group.streams.max.heartbeat.interval.ms int 15000
group.streams.max.session.timeout.ms int 60000
group.streams.max.size int 2147483647
group.streams.max.standby.replicas int 2
group.streams.min.assignment.interval.ms int 0
group.streams.min.heartbeat.interval.ms int 5000
group.streams.min.session.timeout.ms int 45000
group.streams.num.standby.replicas int 0
group.streams.session.timeout.ms int 45000
# the metadata log is embedded
controlled.shutdown.enable boolean true
controller.listener.names list -
controller.quorum.append.linger.ms int 25
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ""
controller.quorum.election.backoff.max.ms int 1000
controller.quorum.election.timeout.ms int 1000
controller.quorum.fetch.max.bytes int 1048576
controller.quorum.fetch.snapshot.max.bytes int 1048576
controller.quorum.fetch.timeout.ms int 2000
controller.quorum.request.timeout.ms int 2000
controller.quorum.retry.backoff.ms int 20
controller.quorum.voters list ""
controller.quota.window.num int 11
controller.quota.window.size.seconds int 1
controller.socket.timeout.ms int 30000
early.start.listeners list -
initial.broker.registration.timeout.ms int 60000
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520
metadata.log.max.snapshot.interval.ms long 3600000
metadata.log.segment.bytes int 1073741824
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
# one broker holds every replica
inter.broker.listener.name string -
broker.heartbeat.interval.ms int 2000
broker.session.timeout.ms int 9000
alter.log.dirs.replication.quota.window.num int 11
alter.log.dirs.replication.quota.window.size.seconds int 1
auto.leader.rebalance.enable boolean true
cordoned.log.dirs list "" per-broker
leader.imbalance.check.interval.seconds long 300
num.replica.alter.log.dirs.threads int -
num.replica.fetchers int 1 cluster-wide
replica.fetch.backoff.ms int 1000
replica.fetch.max.bytes int 1048576
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760
replica.fetch.wait.max.ms int 500
replica.lag.time.max.ms long 30000
replica.selector.class string -
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
replication.quota.window.num int 11
replication.quota.window.size.seconds int 1
unclean.leader.election.enable boolean false cluster-wide
# one event loop serves every connection
background.threads int 10 cluster-wide
delete.records.purgatory.purge.interval.requests int 1
fetch.purgatory.purge.interval.requests int 1000
group.coordinator.append.linger.ms int -1
group.coordinator.background.threads int 2
group.coordinator.cached.buffer.max.bytes int 1048588 cluster-wide
group.coordinator.rebalance.protocols list classic,consumer,streams
group.coordinator.threads int 4
num.io.threads int 8 cluster-wide
num.network.threads int 3 cluster-wide
num.recovery.threads.per.data.dir int 2 cluster-wide
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500
# what a batch may take decompressed is fixed
max.decompressed.message.bytes int 2147483639
# each codec has one level
compression.gzip.level int -1 cluster-wide
compression.lz4.level int 9
compression.zstd.level int 3 cluster-wide
offsets.topic.compression.codec int 0
# there are no metrics reporters
kafka.metrics.polling.interval.secs int 10
kafka.metrics.reporters list ""
metric.reporters list "" cluster-wide
metrics.num.samples int 2
metrics.recording.level string INFO
metrics.sample.window.ms long 30000
telemetry.max.bytes int 1048576
# max.connections.per.ip holds for every address
max.connections.per.ip.overrides string "" cluster-wide
# a commit waits for no other replica
offsets.commit.timeout.ms int 5000
# there are no quotas
max.connection.creation.rate int 2147483647 cluster-wide
quota.window.num int 11
quota.window.size.seconds int 1
# the kernel sizes socket buffers
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
# nothing here corresponds to it
log.preallocate boolean false cluster-wide
log.dir.failure.timeout.ms long 30000
max.request.partition.size.limit int 2000
offsets.load.buffer.size int 5242880
request.timeout.ms int 30000
"""


def _keys() -> tuple[ConfigKey, ...]:
    keys = []
    reason = ""
    for line in _TABLE.strip().split("\n"):
        if line.startswith("# "):
            reason = line.removeprefix("# ")
            continue
        name, config_type, default, *mode = line.split()
        keys.append(
            ConfigKey(
                name,
                ConfigType[config_type.upper()],
                None if default == "-" else default.strip('"'),
                "",
                update_mode=UpdateMode(mode[0]) if mode else UpdateMode.READ_ONLY,
                effect=Effect.NONE,
                reason=reason,
            )
        )
    return tuple(keys)


INERT_KEYS = _keys()
