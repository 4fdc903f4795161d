"""All errors that the command line can report: LL code, exit status and explanation.

A code never changes its meaning and is never reused. The first two digits are the group: 01 topics,
02 groups and transactions, 03 connection, 04 permission, 05 configuration, 06 records, 07 start of
the broker, 08 tables and Spark, 09 the command line.

An entry of `_TEXT` begins with code, name of the exit status and title. The explanation follows,
and then the protocol's codes that are reported as this error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lakelog.base.errors import ErrorCode


class ExitCode(IntEnum):
    """The exit status of the process."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    UNREACHABLE = 5
    CONFLICT = 6
    PARTIAL = 7
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Entry:
    """One error. `kafka` are the protocol's codes that are reported as this error."""

    code: str
    title: str
    exit: ExitCode
    text: str
    kafka: tuple[ErrorCode, ...] = ()


_TEXT = """\
LL0100 FAILURE: the broker rejected the request
The broker returned an error that has no explanation here. The message contains Kafka's name of the
error. `-vv` shows the request and the response; the broker's log may have the reason.

LL0101 CONFLICT: topic already exists
A topic of this name exists. Use `lakelog topic create --if-not-exists` to accept that, or `lakelog
topic alter` to change partitions and configuration.
Kafka: TOPIC_ALREADY_EXISTS

LL0102 NOT_FOUND: topic not found
No topic of this name exists on these brokers, or it was deleted a moment ago. `lakelog topic list`
shows existing topics; `-b` selects the brokers.
Kafka: UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID

LL0103 USAGE: invalid topic name
A topic name consists of 1 to 249 letters, digits, '.', '_' and '-'. '.' and '..' are not allowed.
Names that differ only in '.' and '_' have the same metrics; choose one of the two. `lakelog topic
create NAME` creates a topic.
Kafka: INVALID_TOPIC_EXCEPTION

LL0104 NOT_FOUND: partition not found
The topic does not have this partition. Partitions are numbered from 0; `lakelog topic describe`
shows them.

LL0105 USAGE: invalid number of partitions
A topic has at least one partition, and the number of partitions can only increase. To have fewer,
create another topic with `lakelog topic create --partitions N` and copy the records: `lakelog
consume -e -f jsonl` and `lakelog produce --input-format jsonl`.
Kafka: INVALID_PARTITIONS

LL0106 USAGE: invalid replication factor
A partition cannot have more replicas than the cluster has brokers. `lakelog cluster brokers` shows
the brokers; `--replication-factor` is 1 on a single broker.
Kafka: INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT

LL0107 FAILURE: offset out of range
The offset is below the log start offset (retention has removed it) or above the log end offset.
`lakelog topic describe` shows both offsets.
Kafka: OFFSET_OUT_OF_RANGE

LL0108 CONFLICT: not allowed by the topic's policy
The first records of a topic that is only compacted cannot be deleted, because compaction removes
records by key. `lakelog topic alter --config cleanup.policy=compact,delete` allows it. Records of a
topic with table.enable=true can be deleted when its table has them (`lakelog table sync`), or with
`--force`.
Kafka: POLICY_VIOLATION

LL0201 NOT_FOUND: group not found
No consumer group of this name has members or committed offsets. `lakelog group list` shows existing
groups.
Kafka: GROUP_ID_NOT_FOUND

LL0202 CONFLICT: group is in use
Offsets of a group can only be changed while it has no members: a running consumer would overwrite
them. Stop its consumers and wait for their session timeout. `lakelog group describe` shows them.
Kafka: NON_EMPTY_GROUP UNKNOWN_MEMBER_ID

LL0203 USAGE: invalid group name
A group name must not be empty. Pass a name of your choice, such as `-g billing`; the first commit
of offsets creates the group.
Kafka: INVALID_GROUP_ID

LL0204 UNREACHABLE: group coordinator not available
The broker that coordinates the group is starting or loading its groups. Retry in a moment. `lakelog
cluster health` shows whether the partitions of `__consumer_offsets` have leaders.
Kafka: COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR

LL0205 CONFLICT: the group rejected the member
A response to JoinGroup has a code without a reason. The log of the group's coordinator has the
reason, in a line with the event `join_refused` that names group, member and client and what to do.
`lakelog group describe` shows the members of the group.
Kafka: GROUP_MAX_SIZE_REACHED INCONSISTENT_GROUP_PROTOCOL INVALID_SESSION_TIMEOUT FENCED_INSTANCE_ID

LL0211 NOT_FOUND: transactional id not found
The broker does not know this transactional id: it was never used, or was idle for longer than
`transactional.id.expiration.ms`. `lakelog txn list` shows known ids.
Kafka: TRANSACTIONAL_ID_NOT_FOUND INVALID_PRODUCER_ID_MAPPING

LL0212 NOT_FOUND: no open transaction
The partition has no open transaction of this producer: it has been committed or aborted. `lakelog
txn hanging` lists hanging transactions, `lakelog txn list --state Ongoing` the open ones.

LL0213 CONFLICT: transaction does not hang
A coordinator knows the transaction and will end it: at the request of its producer, or at its
timeout. An abort in one partition would make it incomplete, because its other partitions may still
be committed. `lakelog txn describe` shows its timeout; `--force` aborts it all the same.

LL0214 CONFLICT: producer is fenced
A newer producer uses the same transactional id, or the transaction exceeded its timeout and was
aborted. The open transaction of this producer is aborted; create a new producer. `lakelog txn
describe` shows the present producer of the id.
Kafka: PRODUCER_FENCED INVALID_PRODUCER_EPOCH

LL0215 CONFLICT: not a sink
The transactional id belongs to an ordinary producer. Only a sink has a record of its query, run and
next batch; `lakelog txn list` shows the next batch of each sink.

LL0301 UNREACHABLE: cannot reach the broker
No process accepts connections at the address, or the connection broke. Commands wait up to 5 s
(`--timeout`) for a starting broker on this host. Check that the broker is running (`lakelog dev`)
and that host and port are right (`-b`, LAKELOG_BROKERS). If the first connection works and a later
one fails, the broker advertises an address that this host cannot reach: start it with `--advertise
NAME=HOST:PORT`.
Kafka: NETWORK_EXCEPTION BROKER_NOT_AVAILABLE

LL0302 UNREACHABLE: no answer in time
The broker did not answer within `--timeout`. It may still have executed the request. A repeated
command may then report that it is done already. Raise `--timeout` if the broker is busy; `lakelog
cluster health` shows whether it answers at all.
Kafka: REQUEST_TIMED_OUT

LL0303 UNREACHABLE: not a Kafka protocol response
The process at the address does not speak the Kafka protocol, or it expects TLS. `-b` names the
address of `--listen`, by default port 9092, and not that of `--http` or of ZooKeeper. This program
does not support TLS yet.

LL0304 UNREACHABLE: partition has no leader
The broker that leads the partition is down, its log directory is offline, or its disk is full
(`lakelog explain LL0306`). The broker's log names the reason.
Kafka: LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE KAFKA_STORAGE_ERROR

LL0305 FAILURE: not supported by the broker
The broker does not implement this request, or no version of it that this program knows. `lakelog
cluster info` shows the broker's feature levels. An older broker may need an upgrade;
docs/api-support.md lists lakelog's APIs.
Kafka: UNSUPPORTED_VERSION

LL0306 FAILURE: broker is short of space or descriptors
The file system of the data folder is full, or the broker's process has no free file descriptor.
Writes fail with an error that clients retry, topics cannot be created, and /readyz is not ready. On
a full disk you can delete topics (`topic delete`) and records (`topic delete-records`), shorten
retention (`topic alter`), or add space. For descriptors, raise the limit (`ulimit -n`). The broker
then continues without a restart and logs that.

LL0307 NOT_FOUND: broker not registered
No broker of this id is registered in the cluster. `lakelog cluster brokers` shows the registered
brokers.
Kafka: BROKER_ID_NOT_REGISTERED

LL0308 CONFLICT: broker may be running
Only a broker that has stopped can be unregistered: without a registration a running one could
neither lead partitions nor be fenced. Stop it, and wait until the controller has fenced it
(broker.session.timeout.ms); `lakelog cluster brokers` shows its state.

LL0309 CONFLICT: no leader elected
An unclean election makes the other replicas adopt the log of the new leader. A replica that does
not answer may have more records than the others: start its broker, or accept the loss with
--ignore-missing. `lakelog topic describe` shows eligible replicas, whose start needs no election.

LL0310 CONFLICT: feature level refused
A feature level is finalized only if every registered broker supports it: upgrade the named broker
and start it, or unregister it if it will not return. A level is lowered by --downgrade;
lakelog.metadata.version cannot be lowered, because older versions cannot read the metadata log.
`lakelog cluster features` shows the levels.
Kafka: INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED

LL0401 DENIED: permission denied
The broker's authorizer does not allow this to the user, or authentication failed. The message names
the operation. Brokers of lakelog have no authorizer yet: `-b` names a broker of another kind, whose
operator grants the operation.
Kafka: TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
TRANSACTIONAL_ID_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED

LL0402 USAGE: listener is reachable from other hosts
The broker has no authentication yet: every host that can reach the listener can read, write and
delete all data. Listen on 127.0.0.1, or pass --insecure if the network is trusted. On several
hosts, a private network or a firewall has to keep other hosts out: `lakelog serve --listen
10.0.0.1:9092 --insecure`.

LL0501 USAGE: invalid configuration value
A configuration key does not exist, or the key does not allow the value. The message names key,
value and allowed values; the keys are Kafka's. `lakelog config get --all` lists the keys of a
broker, with `--topic NAME` of a topic, and `lakelog config explain KEY` shows where a value comes
from.
Kafka: INVALID_CONFIG

LL0601 FAILURE: record too large
A record's batch is larger than the topic's max.message.bytes (1048588 unless set): raise it with
`lakelog topic alter TOPIC --config max.message.bytes=N`. The broker's message.max.bytes is the
default for topics without a value; raise it with `lakelog config set message.max.bytes=N
--all-brokers`. `lakelog produce` sends up to 99 MiB in one request; other producers have their own
limit, which must be raised too: max.request.size (Java), message.max.bytes (librdkafka),
max_request_bytes (this library). RECORD_LIST_TOO_LARGE means that a batch is larger than
segment.bytes.
Kafka: MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE

LL0602 FAILURE: corrupt or invalid record
A checksum is wrong, the records of a batch cannot be decoded, or a record breaks a rule of the
topic, such as a missing key for compaction or a wrong timestamp. To skip a stored batch that cannot
be read, begin after it (`lakelog consume TOPIC -p N -o OFFSET`), or delete it with all records
before it (`lakelog topic delete-records TOPIC --partition N --before OFFSET`).
Kafka: CORRUPT_MESSAGE INVALID_RECORD INVALID_TIMESTAMP UNSUPPORTED_COMPRESSION_TYPE

LL0603 FAILURE: not enough replicas
Fewer replicas are in sync than min.insync.replicas requires. Start the missing brokers; `lakelog
cluster health` shows the partitions, and `lakelog topic alter --config min.insync.replicas=1`
accepts writes with fewer replicas, which a failure may then lose.
Kafka: NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND

LL0604 PARTIAL: part of the work was not done
Some records were not acknowledged, or the command failed for some of the given names; it succeeded
for the others. The preceding messages name the failures. Repeat the command for these alone: a
repetition of `lakelog produce` writes the other records again.

LL0605 FAILURE: invalid input line
The line does not match --input-format: a JSON object with the fields key, value, headers, partition
and timestamp_ms. No record after this line was produced. `lakelog consume -f jsonl` prints lines of
this form; docs/cli.md lists the fields.

LL0701 CONFLICT: data folder, broker id or metadata is in use
Another broker holds the lock of the data folder. Two brokers in one folder would destroy it: stop
the other broker, or use another folder. Or another process runs this broker id in the cluster: give
each broker an id of its own, as with `lakelog serve --node-id 2`. Or brokers use the metadata that
`lakelog metadata export` or `import` moves: stop them.

LL0702 CONFLICT: address is in use
Another program listens at the address. Use `lakelog serve --listen HOST:0` or `lakelog dev --port
0` to select a free port.

LL0703 FAILURE: data folder cannot be used
The folder is not readable and writable, or its metadata is missing, damaged, or belongs to another
node or cluster. The broker does not start, and it has not changed the folder. Correct `--data` or
the permissions, or put a missing file back from a backup.

LL0704 FAILURE: address cannot be used
The broker cannot listen at the address: the host does not have the address, its name is unknown, or
the port requires more privileges. `lakelog serve --listen 127.0.0.1:9092` listens for this host
only.

LL0705 FAILURE: a broker of the cluster did not start
`lakelog dev --brokers` and `lakelog serve --workers` end if a broker ends before all of them serve
for the first time. The lines that it logged, with its node id, have the reason. A broker that ends
later is started again.

LL0706 FAILURE: the ZooKeeper ensemble did not start
A server of the ensemble on this host ended or was not ready in time. Its log is the file out.log in
its folder. `lakelog dev --brokers 3` without `--zookeeper` keeps the metadata in a file, and needs
no Java.

LL0707 CONFLICT: the metadata store was refused
The metadata store does not continue the metadata that this broker has followed: it was wiped,
restored from a backup, replaced, or belongs to another cluster. Or a ZooKeeper ensemble does not
accept the broker's credentials, or the cluster has a feature level that this version of lakelog
does not support. The broker stops in order, or does not start; its records are unchanged. Check
`--metadata`. Restore the newest state of the store if it exists. If the lost changes are accepted,
remove `metadata.mark` from the data folder of every broker before the start.

LL0708 CONFLICT: the metadata store is not empty
`lakelog metadata export` writes a new file only, and `import` an empty store only: they would
destroy another log. Choose another place. Chunks that an interrupted import has left in ZooKeeper
are replaced.

LL0709 CONFLICT: a broker refused to run
A broker of `lakelog dev --brokers` or `lakelog serve --workers` ended with status 6: it refused its
metadata store (LL0707), or another process uses its folder, node id or address. The lines that it
logged, with its node id, have the reason. It would refuse again, and is not started again; the
command ends when no broker is left, or when one refuses before all of them serve for the first
time.

LL0710 CONFLICT: the broker was unregistered or replaced
`lakelog cluster unregister` removed this broker from the cluster, or another process registered
with its node id, while its process was paused or could not reach the metadata store. The broker has
stopped in order. To have an unregistered broker in the cluster, start it: it registers again and
copies the records that it lacks. Start a replaced one only with a node id of its own.

LL0801 FAILURE: an optional dependency is not installed
Tables need PySpark, pyarrow and PyIceberg: `pip install '.[spark]'` in a checkout of lakelog.
`lakelog dev --zookeeper` needs PySpark, whose jars contain ZooKeeper, and kazoo: `pip install
'.[spark,zookeeper]'`.

LL0802 FAILURE: Java not found
PySpark and ZooKeeper need a Java runtime, version 17 or newer, on the PATH or in JAVA_HOME (Debian:
apt-get install openjdk-17-jre-headless). `java -version` shows the installed one.

LL0803 FAILURE: the topic cannot be archived
The table's progress does not match the topic or the table: the topic was deleted and created again,
retention removed records before they were archived, a crash lost archived records, or the table was
rolled back. Or a record cannot become a row of the table. The message names the option that
continues, if there is one. `lakelog table describe` shows the archived offsets; docs/spark.md,
"When the job stops", lists all cases.

LL0804 NOT_FOUND: the topic has no table
The topic's key table.warehouse names no table, the data folders of brokers on this host have none,
or nothing was archived into it yet. `lakelog table sync` and `lakelog table create` make one;
`lakelog table list` shows all. If the table is elsewhere, pass the --warehouse, --catalog and
--name of its sync.

LL0805 FAILURE: the table cannot be read or changed
The catalog or a file of the table cannot be read or written from this host, or another program
changed the table. The message states the reason. The table is as before, except after a failed
drop: run it again to complete it. `lakelog table list` shows warehouse and catalog of each table.

LL0806 FAILURE: the table does not have each record once
`lakelog table audit` found offsets that are in the table twice, outside of its progress, or in only
one of table and log. Rows of another program, or a changed table, are the usual reasons: `lakelog
table sync --adopt` continues from a chosen state.

LL0901 USAGE: confirmation required
The command deletes data and cannot ask for confirmation, because its input is not a terminal. Check
the names in the message, and repeat the command with `--yes`.

LL0902 USAGE: wrong arguments
The command line is invalid. `lakelog COMMAND --help` shows the options of a command. The message
names the argument.

LL0903 NOT_FOUND: file not found
A file on the command line does not exist or cannot be read. Check the spelling and the permissions,
with `ls -l` of the path in the message; a relative path begins at the current folder.

LL0904 FAILURE: output cannot be written
Standard output is closed, or its file or device is full or has failed. `consume --group` has
committed only records that were written.

LL0999 FAILURE: unexpected error
A bug in this program. Repeat the command with --debug and report its output.
"""


def _entry(paragraph: str) -> Entry:
    head, _, body = paragraph.partition("\n")
    code, exit_name, title = head.split(maxsplit=2)
    text, _, kafka = body.partition("\nKafka: ")
    return Entry(
        code,
        title,
        ExitCode[exit_name.rstrip(":")],
        " ".join(text.split()),
        tuple(ErrorCode[name] for name in kafka.split()),
    )


CATALOG = {entry.code: entry for entry in map(_entry, _TEXT.split("\n\n"))}
BY_KAFKA = {code: entry for entry in CATALOG.values() for code in entry.kafka}
