"""Every error the command line can report: its LL code, exit status and explanation.

A code never changes its meaning and is never used again. The first two digits group them: 01
topics, 02 groups, 03 connection, 04 permission, 05 configuration, 06 records, 07 the broker's own
start, 08 tables and Spark, 09 the command line itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelog.base.errors import ErrorCode
from lakelog.cli.exit_code import ExitCode


@dataclass(frozen=True, slots=True)
class Entry:
    """One error. `kafka` are the protocol codes that are reported as this one."""

    code: str
    title: str
    exit: ExitCode
    text: str
    kafka: tuple[ErrorCode, ...] = ()


_ENTRIES = (
    Entry(
        "LL0100",
        "the broker refused the request",
        ExitCode.FAILURE,
        "The broker answered with an error that has no page of its own. Its name is Kafka's and "
        "is part of the message.",
    ),
    Entry(
        "LL0101",
        "topic already exists",
        ExitCode.CONFLICT,
        "A topic of this name exists. `lakelog topic create --if-not-exists` accepts that; "
        "`lakelog topic alter` changes partitions and configuration.",
        (ErrorCode.TOPIC_ALREADY_EXISTS,),
    ),
    Entry(
        "LL0102",
        "topic not found",
        ExitCode.NOT_FOUND,
        "No topic of this name exists on the brokers asked, or it was deleted a moment ago. "
        "`lakelog topic list` shows those that exist; `-b` chooses the brokers.",
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID),
    ),
    Entry(
        "LL0103",
        "invalid topic name",
        ExitCode.USAGE,
        "A topic name has 1 to 249 characters out of letters, digits, '.', '_' and '-', and is "
        "neither '.' nor '..'.",
        (ErrorCode.INVALID_TOPIC_EXCEPTION,),
    ),
    Entry(
        "LL0104",
        "partition not found",
        ExitCode.NOT_FOUND,
        "The topic has fewer partitions than the number asked for. They count from 0; "
        "`lakelog topic describe` shows them.",
    ),
    Entry(
        "LL0105",
        "invalid number of partitions",
        ExitCode.USAGE,
        "A topic has at least one partition, and their number can only grow.",
        (ErrorCode.INVALID_PARTITIONS,),
    ),
    Entry(
        "LL0106",
        "invalid replication factor",
        ExitCode.USAGE,
        "There cannot be more replicas of a partition than there are brokers.",
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ),
    Entry(
        "LL0107",
        "offset out of range",
        ExitCode.FAILURE,
        "The offset is below the log start offset (retention has removed it) or above the log end "
        "offset. `lakelog topic describe` shows both.",
        (ErrorCode.OFFSET_OUT_OF_RANGE,),
    ),
    Entry(
        "LL0108",
        "not allowed by the topic's policy",
        ExitCode.CONFLICT,
        "A topic that is only compacted does not let its first records be deleted: what goes from "
        "it is decided by key. `lakelog topic alter --config cleanup.policy=compact,delete` allows "
        "it.",
        (ErrorCode.POLICY_VIOLATION,),
    ),
    Entry(
        "LL0201",
        "group not found",
        ExitCode.NOT_FOUND,
        "No consumer group of this name has members or committed offsets. `lakelog group list` "
        "shows those that have.",
        (ErrorCode.GROUP_ID_NOT_FOUND,),
    ),
    Entry(
        "LL0202",
        "group is in use",
        ExitCode.CONFLICT,
        "Offsets of a group can be changed only while it has no members: a running consumer would "
        "commit over them. Stop its consumers and wait for their session timeout.",
        (ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID),
    ),
    Entry(
        "LL0203",
        "invalid group name",
        ExitCode.USAGE,
        "A group name must not be empty.",
        (ErrorCode.INVALID_GROUP_ID,),
    ),
    Entry(
        "LL0204",
        "group coordinator not available",
        ExitCode.UNREACHABLE,
        "The broker that coordinates the group is starting or loading its groups. Try again in a "
        "moment.",
        (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ),
    ),
    Entry(
        "LL0205",
        "the group refuses the member",
        ExitCode.CONFLICT,
        "The answer to JoinGroup has a code and no reason. The log of the group's coordinator has "
        "both, in a line with the event `join_refused` that names group, member and client and "
        "says what to do. `lakelog group describe` shows the members of the group.",
        (
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.INVALID_SESSION_TIMEOUT,
            ErrorCode.FENCED_INSTANCE_ID,
        ),
    ),
    Entry(
        "LL0211",
        "transactional id not found",
        ExitCode.NOT_FOUND,
        "No transactional id of this name is known: none was ever used, or it has been idle for "
        "longer than `transactional.id.expiration.ms`. `lakelog txn list` shows those that are.",
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ),
    Entry(
        "LL0212",
        "no open transaction",
        ExitCode.NOT_FOUND,
        "The partition has no transaction that could be aborted, or none of this producer: it has "
        "been committed or aborted.",
    ),
    Entry(
        "LL0213",
        "transaction does not hang",
        ExitCode.CONFLICT,
        "A coordinator knows of the transaction and will end it: when its producer says so, or at "
        "its timeout. Aborting it in one partition could tear it, since its other partitions may "
        "still be committed.",
    ),
    Entry(
        "LL0214",
        "producer is fenced",
        ExitCode.CONFLICT,
        "A newer producer with the same transactional id has taken over, or the transaction took "
        "longer than its timeout and was aborted. What this producer had open is void; begin again "
        "with a new producer.",
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    ),
    Entry(
        "LL0301",
        "cannot reach the broker",
        ExitCode.UNREACHABLE,
        "Nothing accepts connections at the address, or the connection broke. A broker on this "
        "machine that is starting is waited for, for up to 5 s (`--timeout`). Is the broker "
        "running (`lakelog dev`), and are host and port right (`-b`, LAKELOG_BROKERS)? If the "
        "first connection works and a later one fails, the broker advertises an address that this "
        "host cannot reach: start it with `--advertise NAME=HOST:PORT`.",
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE),
    ),
    Entry(
        "LL0302",
        "no answer in time",
        ExitCode.UNREACHABLE,
        "The broker did not answer within `--timeout`. The request may still have been carried "
        "out.",
        (ErrorCode.REQUEST_TIMED_OUT,),
    ),
    Entry(
        "LL0303",
        "not a Kafka protocol answer",
        ExitCode.UNREACHABLE,
        "What listens at the address does not speak the Kafka protocol, or it expects TLS.",
    ),
    Entry(
        "LL0304",
        "partition has no leader",
        ExitCode.UNREACHABLE,
        "The broker that leads the partition is down, its log directory is offline, or its disk "
        "is full (`lakelog explain LL0306`). The broker's log names the reason.",
        (
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REPLICA_NOT_AVAILABLE,
            ErrorCode.KAFKA_STORAGE_ERROR,
        ),
    ),
    Entry(
        "LL0305",
        "not supported by the broker",
        ExitCode.FAILURE,
        "The broker does not implement this request, or not in a version this program knows.",
        (ErrorCode.UNSUPPORTED_VERSION,),
    ),
    Entry(
        "LL0306",
        "broker is short of space or descriptors",
        ExitCode.FAILURE,
        "The file system of the data folder is full, or the broker's process has no file "
        "descriptor left. Writes fail with an error that clients retry, no topic is created, and "
        "/readyz is not ready. On a full disk you can still delete topics (`topic delete`) and "
        "records (`topic delete-records`) and shorten retention (`topic alter`). Or add space, or "
        "raise the limit (`ulimit -n`). The broker goes on by itself, and its log says so.",
    ),
    Entry(
        "LL0401",
        "permission denied",
        ExitCode.DENIED,
        "The broker's authorizer does not allow this to the user, or authentication failed.",
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.SASL_AUTHENTICATION_FAILED,
        ),
    ),
    Entry(
        "LL0402",
        "listener is open to everybody",
        ExitCode.USAGE,
        "The broker has no authentication yet, and whoever reaches a listener beyond loopback may "
        "read, write and delete everything. Listen on 127.0.0.1, or pass --insecure if the network "
        "is trusted.",
    ),
    Entry(
        "LL0501",
        "invalid configuration value",
        ExitCode.USAGE,
        "A configuration key does not exist, or its value is not one that the key allows. The "
        "message names key, value and what is allowed; keys are Kafka's own.",
        (ErrorCode.INVALID_CONFIG,),
    ),
    Entry(
        "LL0601",
        "record too large",
        ExitCode.FAILURE,
        "A record's batch is larger than the topic's max.message.bytes (1048588 unless set): "
        "`lakelog topic alter TOPIC --config max.message.bytes=N` raises it. The broker's "
        "message.max.bytes is only the default for topics that do not set their own; `lakelog "
        "config set message.max.bytes=N --all-brokers` raises that. `lakelog produce` sends up to "
        "99 MiB in one request; other producers have a limit of their own, which has to be raised "
        "as well: max.request.size (Java), message.max.bytes (librdkafka), max_request_bytes "
        "(this library). RECORD_LIST_TOO_LARGE means a batch larger than segment.bytes.",
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    ),
    Entry(
        "LL0602",
        "corrupt or invalid record",
        ExitCode.FAILURE,
        "A checksum is wrong, the records of a batch cannot be decoded, or a record breaks a rule "
        "of the topic, such as a key for compaction or a timestamp near the present. To get past a "
        "stored batch that cannot be read, begin behind it, `lakelog consume TOPIC -p N -o "
        "OFFSET`, or delete it with all before it, `lakelog topic delete-records TOPIC --partition "
        "N --before OFFSET`.",
        (
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
            ErrorCode.INVALID_TIMESTAMP,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ),
    ),
    Entry(
        "LL0603",
        "not enough replicas",
        ExitCode.FAILURE,
        "Fewer replicas are in sync than min.insync.replicas asks for.",
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
    ),
    Entry(
        "LL0604",
        "part of the work was not done",
        ExitCode.PARTIAL,
        "Some records were not acknowledged, or some of the things named could not be handled; "
        "the others were. The messages before this one say which.",
    ),
    Entry(
        "LL0605",
        "input line cannot be used",
        ExitCode.FAILURE,
        "The line is not what --input-format promises: a JSON object with the fields key, value, "
        "headers, partition and timestamp_ms. Nothing after this line was produced.",
    ),
    Entry(
        "LL0701",
        "data folder is in use",
        ExitCode.CONFLICT,
        "Another broker holds the lock of the data folder. Two brokers on one folder would "
        "destroy it: stop the other one, or give this one a folder of its own.",
    ),
    Entry(
        "LL0702",
        "address is in use",
        ExitCode.CONFLICT,
        "Another program listens at the address. `lakelog serve --listen HOST:0` and `lakelog dev "
        "--port 0` take a free port.",
    ),
    Entry(
        "LL0703",
        "data folder cannot be used",
        ExitCode.FAILURE,
        "The folder is not readable and writable, or its metadata is missing, damaged, or belongs "
        "to another node or cluster. The broker refuses to start rather than guess: nothing in "
        "the folder was changed.",
    ),
    Entry(
        "LL0704",
        "address cannot be used",
        ExitCode.FAILURE,
        "The broker cannot listen at the address: the host has no such address, its name is "
        "unknown, or the port needs more rights. `lakelog serve --listen 127.0.0.1:9092` is for "
        "this host alone.",
    ),
    Entry(
        "LL0801",
        "an optional part is not installed",
        ExitCode.FAILURE,
        "Tables need PySpark, pyarrow and PyIceberg: `pip install 'lakelog[spark]'`, "
        "or `pip install '.[spark]'` in a checkout.",
    ),
    Entry(
        "LL0802",
        "Java not found",
        ExitCode.FAILURE,
        "PySpark needs a Java runtime, version 17 or newer, on the PATH or in JAVA_HOME (Debian: "
        "apt-get install openjdk-17-jre-headless).",
    ),
    Entry(
        "LL0803",
        "the topic cannot be archived as it is",
        ExitCode.FAILURE,
        "The table's recorded progress does not fit the topic or the table itself: the topic was "
        "deleted and created again, retention removed what was not archived, a crash lost records "
        "that were, or the table was rolled back. Or a record cannot be a row of the table. The "
        "message names the option that continues, if there is one.",
    ),
    Entry(
        "LL0901",
        "confirmation needed",
        ExitCode.USAGE,
        "The command destroys something and cannot ask, because its input is not a terminal. "
        "Repeat it with --yes.",
    ),
    Entry(
        "LL0902",
        "wrong arguments",
        ExitCode.USAGE,
        "The command line cannot be understood. `lakelog COMMAND --help` shows what is allowed.",
    ),
    Entry(
        "LL0903",
        "file not found",
        ExitCode.NOT_FOUND,
        "A file named on the command line does not exist or cannot be read.",
    ),
    Entry(
        "LL0904",
        "output cannot be written",
        ExitCode.FAILURE,
        "Standard output is closed, or the file or device that it leads to is full or failed. "
        "`consume --group` has committed only what was written before.",
    ),
    Entry(
        "LL0999",
        "unexpected error",
        ExitCode.FAILURE,
        "A fault of this program. Repeat the command with --debug and report what it prints.",
    ),
)

CATALOG: dict[str, Entry] = {entry.code: entry for entry in _ENTRIES}
BY_KAFKA: dict[ErrorCode, Entry] = {code: entry for entry in _ENTRIES for code in entry.kafka}
