"""The laws of a simulated world: whatever breaks one is a bug, of the broker or of the world.

Each is shown to hold by planted bugs that break it (`tests/simulation/planted_bugs.py`): a law that
no bug can break is no law.
"""

from __future__ import annotations

from enum import Enum


class Law(Enum):
    """A law by name, and what it says."""

    # Records
    WRITTEN = "what is read was written, and written there"
    ONE_VALUE = "an offset has one value"
    ONCE = "what an idempotent producer sends is there once"
    IN_ORDER = "what a producer sent later lies behind"
    KEPT = "what was acknowledged is there"
    DURABLE = "what clients know of survives the power where every record is synced"
    KEYS_KEPT = "compaction keeps the newest value of each key"
    TOMBSTONE_KEPT = "a tombstone stays until readers have had their time"
    DELETED = "a deleted key does not come back"
    INTACT = "no damaged batch is served"
    ADJACENT = "a fetch goes on where the one before has ended"
    BELOW_WATERMARK = "nobody reads beyond the high watermark"
    READABLE = "what is below the end can be read"
    OUT_OF_RANGE = "an offset is out of range only beyond a log's ends"
    AT_TIME = "a lookup by time finds the first record at or after it"
    EPOCH_END = "a leader epoch ends where the next one begins"
    RETAINED = "what is young enough, or among the newest bytes, is not retired"
    START_KEPT = "a log begins where it began unless somebody deletes"
    END_KEPT = "a log reaches to where it reached"
    TRIMMED = "a log begins at or above what DeleteRecords was asked for"
    TOPIC_KEPT = "a topic that was made is there until somebody deletes it"
    CONFIG_KEPT = "a setting that was made is there until somebody changes it"
    STAYS_TRIMMED = "no start brings back what DeleteRecords has acknowledged"
    SESSION_COMPLETE = "a fetch session leaves out only what has not changed"
    SESSION_FORGETS = "a fetch session tells nothing of what was forgotten"

    # Producers and transactions
    NEW_IDENTITY = "a producer id and epoch are given out once"
    IDENTITY_KEPT = "a transactional id keeps its producer id while nothing is lost"
    FENCED = "a producer of an older epoch is refused"
    EPOCHS_SPARED = "an epoch rises only as far as requests and the ends of transactions raise it"
    SAME_BATCH = "a batch that is sent again is the same batch"
    TAKEN = "a batch in sequence is taken"
    NO_GAP = "a batch that leaves a gap in its producer's sequence is refused"
    IN_TIME = "a transaction goes on until its time is over"
    ENDS = "every transaction ends"
    COMMITTED_ONLY = "readers of committed records see no other"
    BELOW_STABLE = "readers of committed records stay below the last stable offset"
    WHOLE = "a transaction is there as a whole or not at all"

    # Groups
    OFFSET_KEPT = "a committed offset is there"
    OFFSET_FORWARD = "a committed offset does not go back"
    OFFSET_SENT = "a committed offset was sent by somebody"
    OFFSET_DECIDED = "an offset of a transaction appears with its commit"
    OLD_GENERATION = "a member of an older generation does not commit"
    GENERATION_OWNER = "a partition has one owner in each generation"
    GENERATION_FORWARD = "a generation does not come again"
    ONE_OWNER = "a partition has one owner at a time"
    FENCED_INSTANCE = "a static member that was replaced is refused"
    EXPIRES = "a member that died gives up its partitions with its session"
    OWNED = "each partition has an owner once members come and go no more"

    # Logs, by their insides
    ORDER = "start, last stable offset, high watermark and end are in order"
    FORWARD = "no offset and no epoch of a running log goes back"
    PROMISED_END = "a start finds a log up to where it was promised"
    DAMAGE_ENDS = "an unclean start ends a log at a damage above its recovery point"
    STABLE_FORWARD = "the last stable offset does not go back over a start"
    EPOCH_RISES = "the leader epoch rises at each start"
    SAME_BYTES = "batches below the high watermark keep their bytes"

    # The whole
    ANSWERS = "errors are those that a client can expect"
    CLIENTS_LIVE = "no client meets what it cannot understand"
    PROMPT = "who can reach a broker has an answer in time, whatever its wall clock does"
    PROGRESS = "what is asked of a broker is done while nothing is in its way"
    RESTS = "all that was asked is answered in the end"
    STARTS = "a broker starts and stops"
    NO_BUGS = "the broker logs no traceback"
