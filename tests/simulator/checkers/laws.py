"""The laws: promises to clients, and invariants of logs, that every simulated world must keep.

A violation is a bug, of the broker or of the simulation. Planted bugs break each law
(`tests/simulation/planted_bugs.py`): a law that no bug can break checks nothing.
"""

from __future__ import annotations

from enum import Enum


class Law(Enum):
    """The name of a law, and its text."""

    # Records
    WRITTEN = "every record read was sent, to that partition"
    ONE_VALUE = "an offset has one value"
    ONCE = "a log has a value of an idempotent producer once"
    IN_ORDER = "a log keeps the order in which a producer sent"
    KEPT = "every acknowledged record is in the log"
    DURABLE = "acknowledged records survive a power failure where every record is synced"
    KEYS_KEPT = "compaction keeps the newest value of each key"
    TOMBSTONE_KEPT = "compaction keeps a tombstone for delete.retention.ms"
    DELETED = "a deleted key does not reappear"
    INTACT = "the broker serves no damaged batch"
    ADJACENT = "a fetch continues where the previous one ended"
    BELOW_WATERMARK = "no consumer reads beyond the high watermark"
    READABLE = "every offset below the log end can be read"
    OUT_OF_RANGE = "an offset is out of range only outside the log"
    AT_TIME = "a lookup by time finds the first record at or after the time"
    EPOCH_END = "a leader epoch ends where the next one begins"
    RETAINED = "retention keeps young records and the newest bytes"
    START_KEPT = "the log start offset rises only by deletion"
    END_KEPT = "the log end offset does not decrease"
    TRIMMED = "DeleteRecords raises the log start offset to the requested one"
    TOPIC_KEPT = "a created topic exists until a client deletes it"
    CONFIG_KEPT = "a configuration value stays until a client changes it"
    STAYS_TRIMMED = "no restart restores records deleted by DeleteRecords"
    SESSION_COMPLETE = "a fetch session omits only unchanged partitions"
    SESSION_FORGETS = "a fetch session returns no forgotten partition"

    # Producers and transactions
    NEW_IDENTITY = "a producer id and epoch are assigned once"
    IDENTITY_KEPT = "a transactional id keeps its producer id unless records are lost"
    FENCED = "the broker rejects a producer of an older epoch"
    EPOCHS_SPARED = "an epoch rises by no more than requests and ends of transactions raise it"
    SAME_BATCH = "a retried batch keeps its offset"
    TAKEN = "the broker appends a batch in sequence"
    NO_GAP = "the broker rejects a batch behind a gap in the sequence"
    IN_TIME = "a transaction stays open until its timeout"
    ENDS = "every transaction ends"
    COMMITTED_ONLY = "read_committed returns committed records only"
    BELOW_STABLE = "read_committed stays below the last stable offset"
    BATCH_ONCE = "a sink commits each batch once"
    WHOLE = "a transaction is visible completely or not at all"

    # Groups
    OFFSET_KEPT = "a committed offset is not lost"
    OFFSET_FORWARD = "a committed offset does not go back"
    OFFSET_SENT = "a client committed the returned offset"
    OFFSET_DECIDED = "an offset in a transaction appears with its commit"
    OLD_GENERATION = "the broker rejects a commit of an older generation"
    GENERATION_OWNER = "a partition has one owner in each generation"
    GENERATION_FORWARD = "a generation is not reused"
    ONE_OWNER = "a partition has one owner at a time"
    FENCED_INSTANCE = "the broker rejects a replaced static member"
    EXPIRES = "a dead member's partitions are reassigned when its session expires"
    OWNED = "each partition has an owner when no member joins or leaves"

    # Logs, observed inside the broker
    ORDER = "log start, last stable offset, high watermark and log end are in order"
    FORWARD = "no offset and no epoch of a running log decreases"
    PROMISED_END = "a start finds every log up to its promised end"
    DAMAGE_ENDS = "an unclean start truncates a log at damage above its recovery point"
    STABLE_FORWARD = "the last stable offset does not decrease at a restart"
    EPOCH_RISES = "the leader epoch rises at each start"
    SAME_BYTES = "batches below the high watermark keep their bytes"

    # Clusters
    ONE_LEADER = "a leader epoch has one leader"
    WATERMARK_KEPT = "the high watermark of a replica does not decrease while its process runs"
    LEADER_COMPLETE = "a leader has every acknowledged record"
    IN_SYNC = "an in-sync or eligible replica has every committed record"
    EPOCHS_IN_ORDER = "the leader epochs of the batches in a log do not fall"
    COPIED = "a follower stores only batches that the leader of its epoch has"
    SAME_PREFIX = "all replicas have the same committed bytes"
    CURRENT_MEMBERS = "an in-sync replica joined with its current broker epoch, and is not fenced"
    ONE_COORDINATOR = "a coordinator acts in the leader epoch of its partition, alone"
    MARKED = "a transaction is complete only when every partition has its marker"
    DECIDED = "a transaction ends in a partition only after its coordinator's decision"
    SAME_IMAGE = "metadata images are equal at equal index"
    ONE_TERM = "an entry of the metadata log is of the newest term of a controller"
    AVAILABLE = "a sound and complete majority acknowledges within a session and two seconds"
    SHOWN = (
        "health and metrics show a partition that cannot be written, and no fenced broker is ready"
    )
    HEALS = "after all faults every ISR is complete within 30 seconds"

    # The system
    ANSWERS = "the broker returns only errors that a client can expect"
    CLIENTS_LIVE = "no client fails on an unexpected response"
    PROMPT = "a reachable broker responds in time, however wall clocks leap"
    PROGRESS = "an undisturbed broker carries out what clients request"
    RESTS = "every request is answered in the end"
    STARTS = "a broker starts and stops"
    NO_BUGS = "the broker logs no traceback"
