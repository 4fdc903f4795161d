"""Apache Kafka's broker keys without effect here: accepted ones, each group under its reason.

The table exists so that every key of a migrated `server.properties` is known and its value checked.
Source: `AbstractKafkaConfig.CONFIG_DEF` and `DynamicBrokerConfig` of Kafka 4.3.1.

Rejected keys are for features that lakelog lacks and that would be missed. A value other than the
default ends the start with the reason: a cluster that was configured to check its clients, for
example, must not start without that check.
"""

from __future__ import annotations

from lakelog.base.config.rows import parse_keys

REJECTED_KEYS = parse_keys(
    """
#- listeners support PLAINTEXT only
security.inter.broker.protocol string PLAINTEXT
#- authorization is not supported
authorizer.class.name string ""
super.users string ""
#- Java classes are not supported
create.topic.policy.class.name class -
alter.config.policy.class.name class -
client.quota.callback.class class -
#- values are used literally
config.providers list ""
#- tiered storage is not supported
remote.log.storage.system.enable boolean false
"""
)


INERT_KEYS = parse_keys(
    """
# replica.high.watermark.checkpoint.interval.ms is the interval of all checkpoints
log.flush.offset.checkpoint.interval.ms int 60000 0..
log.flush.start.offset.checkpoint.interval.ms int 60000 0..
# TLS is not supported
ssl.allow.dn.changes boolean false
ssl.allow.san.changes boolean false
ssl.cipher.suites list "" per-broker
ssl.client.auth string none in:required|requested|none per-broker
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
# SASL is not supported
connection.failed.authentication.delay.ms int 100 0..
connections.max.reauth.ms long 0
delegation.token.expiry.check.interval.ms long 3600000 1..
delegation.token.expiry.time.ms long 86400000 1..
delegation.token.max.lifetime.ms long 604800000 1..
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
sasl.oauthbearer.assertion.algorithm string RS256 in:ES256|RS256
sasl.oauthbearer.assertion.claim.aud string -
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
sasl.oauthbearer.assertion.claim.iss string -
sasl.oauthbearer.assertion.claim.jti.include boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
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
# tiered storage is not supported
follower.fetch.last.tiered.offset.enable boolean false cluster-wide
log.local.retention.bytes long -2 -2.. cluster-wide
log.local.retention.ms long -2 -2.. cluster-wide
remote.fetch.max.wait.ms int 500 1.. cluster-wide
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.copy.quota.window.num int 11 1..
remote.log.manager.copy.quota.window.size.seconds int 1 1..
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
remote.log.manager.fetch.quota.window.num int 11 1..
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide
remote.log.manager.task.interval.ms long 30000 1..
remote.log.manager.thread.pool.size int 2 1..
remote.log.metadata.custom.metadata.max.bytes int 128 0..
remote.log.metadata.manager.class.name string -
remote.log.metadata.manager.class.path string -
remote.log.metadata.manager.impl.prefix string rlmm.config.
remote.log.metadata.manager.listener.name string -
remote.log.reader.max.pending.tasks int 100 1..
remote.log.reader.threads int 10 1.. cluster-wide
remote.log.storage.manager.class.name string -
remote.log.storage.manager.class.path string -
remote.log.storage.manager.impl.prefix string rsm.config.
# verifications of transactions are repeated at fixed intervals
add.partitions.to.txn.retry.backoff.max.ms int 100 0..
add.partitions.to.txn.retry.backoff.ms int 20 1..
# transactions are aborted at their timeout, without a periodic check
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1..
# coordinators load their logs in steps of 1 MiB
transaction.state.log.load.buffer.size int 5242880 1..
# share groups are not supported
group.share.assignment.interval.ms int 1000 0.. cluster-wide
group.share.assignors list simple
group.share.delivery.count.limit int 5 2..10
group.share.heartbeat.interval.ms int 5000 1..
group.share.max.assignment.interval.ms int 15000 0..
group.share.max.delivery.count.limit int 10 5..25
group.share.max.heartbeat.interval.ms int 15000 1..
group.share.max.partition.max.record.locks int 4000 2000..10000
group.share.max.record.lock.duration.ms int 60000 30000..3600000
group.share.max.session.timeout.ms int 60000 1..
group.share.max.share.sessions int 2000 1..
group.share.max.size int 200 1..1000
group.share.min.assignment.interval.ms int 0 0..
group.share.min.delivery.count.limit int 2 2..5
group.share.min.heartbeat.interval.ms int 5000 1..
group.share.min.partition.max.record.locks int 100 100..2000
group.share.min.record.lock.duration.ms int 15000 1000..30000
group.share.min.session.timeout.ms int 45000 1..
group.share.partition.max.record.locks int 2000 100..10000
group.share.record.lock.duration.ms int 30000 1000..3600000
group.share.session.timeout.ms int 45000 1..
share.coordinator.append.linger.ms int -1 -1..
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
share.coordinator.load.buffer.size int 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500
share.coordinator.state.topic.compression.codec int 0
share.coordinator.state.topic.min.isr short 1 1..
share.coordinator.state.topic.num.partitions int 50 1..
share.coordinator.state.topic.replication.factor short 1 1..
share.coordinator.state.topic.segment.bytes int 104857600 1..
share.coordinator.threads int 1 1..
share.coordinator.write.timeout.ms int 5000 1..
share.fetch.purgatory.purge.interval.requests int 1000
# streams groups are not supported
group.streams.assignment.interval.ms int 1000 0.. cluster-wide
group.streams.heartbeat.interval.ms int 5000 1..
group.streams.initial.rebalance.delay.ms int 3000 0..
group.streams.max.assignment.interval.ms int 15000 0..
group.streams.max.heartbeat.interval.ms int 15000 1..
group.streams.max.session.timeout.ms int 60000 1..
group.streams.max.size int 2147483647 1..
group.streams.max.standby.replicas int 2 0..
group.streams.min.assignment.interval.ms int 0 0..
group.streams.min.heartbeat.interval.ms int 5000 1..
group.streams.min.session.timeout.ms int 45000 1..
group.streams.num.standby.replicas int 0 0..
group.streams.session.timeout.ms int 45000 1..
# the metadata store elects the controller, and keeps the metadata
controlled.shutdown.enable boolean true
controller.listener.names list -
controller.quorum.append.linger.ms int 25 0..
controller.quorum.auto.join.enable boolean false
controller.quorum.bootstrap.servers list ""
controller.quorum.election.backoff.max.ms int 1000 0..
controller.quorum.election.timeout.ms int 1000 0..
controller.quorum.fetch.max.bytes int 1048576 1..
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
controller.quorum.fetch.timeout.ms int 2000 0..
controller.quorum.request.timeout.ms int 2000 0..
controller.quorum.retry.backoff.ms int 20 0..
controller.quorum.voters list ""
controller.quota.window.num int 11 1..
controller.quota.window.size.seconds int 1 1..
controller.socket.timeout.ms int 30000
early.start.listeners list -
initial.broker.registration.timeout.ms int 60000
metadata.log.dir string -
metadata.log.max.record.bytes.between.snapshots long 20971520 1..
metadata.log.max.snapshot.interval.ms long 3600000 0..
metadata.log.segment.bytes int 1073741824 8388608..
metadata.log.segment.ms long 604800000
metadata.max.idle.interval.ms int 500 0..
metadata.max.retention.bytes long 104857600
metadata.max.retention.ms long 604800000
# replication is not throttled
follower.replication.throttled.rate long 9223372036854775807 0.. cluster-wide
leader.replication.throttled.rate long 9223372036854775807 0.. cluster-wide
replication.quota.window.num int 11 1..
replication.quota.window.size.seconds int 1 1..
# a broker has one log directory
alter.log.dirs.replication.quota.window.num int 11 1..
alter.log.dirs.replication.quota.window.size.seconds int 1 1..
cordoned.log.dirs list "" per-broker
num.replica.alter.log.dirs.threads int -
replica.alter.log.dirs.io.max.bytes.per.second long 9223372036854775807 0.. cluster-wide
# brokers call each other at their first listener
inter.broker.listener.name string -
# a preferred replica leads again once it has all records
leader.imbalance.check.interval.seconds long 300 1..
# consumers read from leaders
replica.selector.class string -
# connections between brokers, fetches of followers and heartbeats have fixed limits
broker.heartbeat.interval.ms int 2000
num.replica.fetchers int 1 1.. cluster-wide
replica.fetch.backoff.ms int 1000 0..
replica.fetch.max.bytes int 1048576 0..
replica.fetch.min.bytes int 1
replica.fetch.response.max.bytes int 10485760 0..
replica.fetch.wait.max.ms int 500
replica.socket.receive.buffer.bytes int 65536
replica.socket.timeout.ms int 30000
# one event loop serves every connection
background.threads int 10 1.. cluster-wide
delete.records.purgatory.purge.interval.requests int 1
fetch.purgatory.purge.interval.requests int 1000
group.coordinator.append.linger.ms int -1 -1..
group.coordinator.background.threads int 2 1..
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
group.coordinator.threads int 4 1..
num.io.threads int 8 1.. cluster-wide
num.network.threads int 3 1.. cluster-wide
num.recovery.threads.per.data.dir int 2 1.. cluster-wide
producer.purgatory.purge.interval.requests int 1000
queued.max.requests int 500 1..
# each codec has a fixed level
compression.gzip.level int -1 1..9|-1 cluster-wide
compression.lz4.level int 9 1..17 cluster-wide
compression.zstd.level int 3 -131072..22 cluster-wide
offsets.topic.compression.codec int 0
# metrics are exposed on the HTTP endpoint; there are no reporters
kafka.metrics.polling.interval.secs int 10 1..
kafka.metrics.reporters list ""
metric.reporters list "" cluster-wide
metrics.num.samples int 2 1..
metrics.recording.level string INFO
metrics.sample.window.ms long 30000 1..
telemetry.max.bytes int 1048576 1..
# max.connections.per.ip applies to every address
max.connections.per.ip.overrides string "" cluster-wide
# quotas are not supported
quota.window.num int 11 1..
quota.window.size.seconds int 1 1..
# the kernel sizes socket buffers
socket.connection.setup.timeout.max.ms long 30000
socket.connection.setup.timeout.ms long 10000
socket.receive.buffer.bytes int 102400
socket.send.buffer.bytes int 102400
# lakelog has no corresponding mechanism
log.preallocate boolean false cluster-wide
log.dir.failure.timeout.ms long 30000 1..
offsets.load.buffer.size int 5242880 1..
#! it serves the tests of Apache Kafka
controller.performance.always.log.threshold.ms long 2000 0..
controller.performance.sample.period.ms long 60000 100..
group.share.initialize.retry.interval.ms int 30000 1..
group.share.persister.class.name string -
internal.metadata.delete.delay.millis long 60000
internal.metadata.log.segment.bytes int -
internal.metadata.max.batch.size.in.bytes int 8388608
log.initial.task.delay.ms long 30000 0..
remote.log.index.file.cache.ttl.ms long 900000 -1..
remote.log.manager.task.retry.backoff.max.ms long 30000 1..
remote.log.manager.task.retry.backoff.ms long 500 1..
remote.log.manager.task.retry.jitter double 0.2 0..0.5
server.max.startup.time.ms long 9223372036854775807 0..
share.coordinator.cold.partition.snapshot.interval.ms int 300000 1..
share.coordinator.state.topic.prune.interval.ms int 300000 1..
unclean.leader.election.interval.ms long 300000 1..
unstable.api.versions.enable boolean false
unstable.feature.versions.enable boolean false
"""
)
