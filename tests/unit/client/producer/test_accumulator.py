from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lakelog.base.errors import ErrorCode
from lakelog.client.errors import NotWrittenError, OutcomeUnknownError
from lakelog.client.producer.accumulator import Accumulator, Settings
from lakelog.client.producer.batch import PartitionQueue, ProducerBatch
from lakelog.client.producer.results import Delivery, Verdict, judge
from lakelog.records.batch import read_header
from lakelog.records.record import decode_records

DELIVERY_S = 100.0
LINGER_S = 0.5


def accumulator(**changes: object) -> Accumulator:
    values: dict[str, object] = {
        "codec": 0,
        "linger_s": LINGER_S,
        "delivery_timeout_s": DELIVERY_S,
        "max_in_flight": 5,
        "is_idempotent": True,
    }
    return Accumulator(Settings(**{**values, **changes}))  # type: ignore[arg-type]


def queue_of(acc: Accumulator, partition: int = 0) -> PartitionQueue:
    queue = acc.queue("t", partition)
    queue.producer_id, queue.producer_epoch = 7, 0
    return queue


def add(acc: Accumulator, queue: PartitionQueue, now: float = 0.0, count: int = 1) -> ProducerBatch:
    """A closed batch of `count` records."""
    batch = acc.open(queue, now)
    for _ in range(count):
        batch.builder.append(1, None, b"v")
    acc.close(queue)
    return batch


def test_an_open_batch_waits_for_company_until_its_linger_is_over() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    acc.open(queue, 10.0).builder.append(1, None, b"v")
    assert acc.ready(10.0) == []
    assert acc.wait_s(10.0) == LINGER_S
    assert acc.ready(10.0 + LINGER_S) == [queue]


def test_flushing_does_not_wait() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    acc.open(queue, 0.0).builder.append(1, None, b"v")
    acc.is_flushing = True
    assert acc.ready(0.0) == [queue]
    acc.take(queue)
    assert acc.ready(0.0) == []
    assert not acc.is_idle


def test_a_closed_batch_is_ready_and_counts_as_buffered_until_it_is_answered() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    batch = add(acc, queue)
    assert acc.ready(0.0) == [queue]
    assert acc.buffered_bytes == batch.size
    assert acc.take(queue) is batch
    assert acc.answer(batch, ErrorCode.NONE, 0.0, base_offset=5) is Verdict.DONE
    assert acc.buffered_bytes == 0
    assert acc.is_idle
    assert batch.result.base_offset == 5


def test_no_more_than_five_are_in_flight() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    for _ in range(6):
        add(acc, queue)
    for _ in range(5):
        assert acc.ready(0.0) == [queue]
        acc.take(queue)
    assert acc.ready(0.0) == []
    acc.answer(queue.in_flight[0], ErrorCode.NONE, 0.0)
    assert acc.ready(0.0) == [queue]


def test_a_gap_behind_an_unresolved_batch_is_not_its_own_failure() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    first, second = add(acc, queue), add(acc, queue)
    acc.take(queue), acc.take(queue)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert acc.answer(second, out_of_order, 0.0) is Verdict.RETRY
    assert acc.answer(first, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.0) is Verdict.RETRY
    assert not queue.renumber_wanted


def test_lost_sequences_start_over_at_the_next_epoch_once_all_are_answered() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    queue.next_sequence = 40
    first, second = add(acc, queue, count=2), add(acc, queue)
    acc.take(queue), acc.take(queue)
    first.encode()
    unknown = ErrorCode.UNKNOWN_PRODUCER_ID
    assert acc.answer(first, unknown, 0.0) is Verdict.RENUMBER
    assert acc.ready(50.0) == [], "the second is still under way with its old sequence"
    assert acc.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0) is Verdict.RETRY
    assert acc.ready(50.0) == [queue]
    assert [acc.take(queue), acc.take(queue)] == [first, second]
    assert [batch.sequence for batch in (first, second)] == [0, 2]
    header = read_header(first.encode())
    assert (header.producer_epoch, header.base_sequence) == (1, 0)
    assert len(decode_records(first.encode(), header, 1000)) == 2


def test_other_partitions_keep_their_epoch() -> None:
    acc = accumulator()
    one, other = queue_of(acc, 0), queue_of(acc, 1)
    lost, fine = add(acc, one), add(acc, other)
    acc.take(one), acc.take(other)
    acc.answer(lost, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0.0)
    acc.ready(50.0)
    assert (one.producer_epoch, other.producer_epoch) == (1, 0)
    assert acc.answer(fine, ErrorCode.NONE, 0.0) is Verdict.DONE


def test_a_refusal_says_not_written() -> None:
    acc = accumulator()
    batch = add(acc, queue := queue_of(acc))
    acc.take(queue)
    verdict = acc.answer(batch, ErrorCode.MESSAGE_TOO_LARGE, 0.0, message="1 > 0")
    assert verdict is Verdict.FAIL
    assert isinstance(batch.result.error, NotWrittenError)
    assert "t-0" in str(batch.result.error)
    assert "1 > 0" in str(batch.result.error)
    assert acc.take_failure() is batch.result.error
    assert acc.take_failure() is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.NETWORK_EXCEPTION, OutcomeUnknownError),
        (ErrorCode.REQUEST_TIMED_OUT, OutcomeUnknownError),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, OutcomeUnknownError),
        (ErrorCode.NOT_ENOUGH_REPLICAS, NotWrittenError),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, NotWrittenError),
    ],
)
def test_giving_up_says_whether_it_may_be_written(code: ErrorCode, kind: type) -> None:
    acc = accumulator()
    batch = add(acc, queue := queue_of(acc))
    acc.take(queue)
    acc.answer(batch, code, 0.0)
    assert acc.expire(DELIVERY_S - 1) == []
    assert acc.expire(DELIVERY_S) == [batch]
    assert type(batch.result.error) is kind
    assert acc.is_idle


def test_a_doubt_from_an_earlier_try_stays() -> None:
    acc = accumulator()
    batch = add(acc, queue := queue_of(acc))
    acc.take(queue)
    acc.answer(batch, ErrorCode.NETWORK_EXCEPTION, 0.0)
    acc.take(queue)
    acc.answer(batch, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0.0)
    assert isinstance(batch.result.error, OutcomeUnknownError)


def test_an_expired_batch_that_was_never_sent_fails_as_not_written() -> None:
    acc = accumulator()
    batch = add(acc, queue_of(acc))
    acc.expire(DELIVERY_S)
    assert isinstance(batch.result.error, NotWrittenError)


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_batch_that_expires_because_of_a_full_disk_reports_that(
    code: ErrorCode, reported: ErrorCode
) -> None:
    acc = accumulator()
    batch = add(acc, queue_of(acc))
    acc.take(batch.queue)
    acc.answer(batch, code, 0.0, message="delete topics")
    acc.expire(DELIVERY_S)
    assert batch.result.error is not None
    assert (batch.result.error.code, "delete topics" in str(batch.result.error)) == (reported, True)


def test_a_batch_that_was_never_closed_is_given_up_as_well() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    batch = acc.open(queue, 0.0)
    batch.builder.append(1, None, b"v")
    queue.postpone(2 * DELIVERY_S, "connection refused")
    assert acc.wait_s(0.0) == DELIVERY_S
    assert acc.expire(DELIVERY_S) == [batch]
    assert isinstance(batch.result.error, NotWrittenError)
    assert "connection refused" in str(batch.result.error)
    assert acc.is_idle
    assert acc.buffered_bytes == 0


def test_a_failure_raised_for_its_record_is_not_reported_again() -> None:
    acc = accumulator()
    seen, unseen = add(acc, queue_of(acc, 0)), add(acc, queue_of(acc, 1))
    acc.expire(DELIVERY_S)
    with pytest.raises(NotWrittenError):
        Delivery(seen.result, 0, 0).result(0)
    assert acc.take_failure() is unseen.result.error


def test_ending_fails_everything() -> None:
    acc = accumulator()
    queue = queue_of(acc)
    sent, waiting = add(acc, queue), add(acc, queue)
    acc.take(queue)
    open_batch = acc.open(queue, 0.0)
    open_batch.builder.append(1, None, b"v")
    acc.fail_all(ErrorCode.NETWORK_EXCEPTION, "closed")
    assert isinstance(sent.result.error, OutcomeUnknownError)
    assert isinstance(waiting.result.error, NotWrittenError)
    assert isinstance(open_batch.result.error, NotWrittenError)
    assert acc.is_idle
    assert acc.buffered_bytes == 0


def test_being_fenced_ends_the_producer() -> None:
    assert judge(ErrorCode.INVALID_PRODUCER_EPOCH, is_first=True) is Verdict.FATAL
    assert judge(ErrorCode.PRODUCER_FENCED, is_first=False) is Verdict.FATAL


class OneBroker(RuleBasedStateMachine):
    """A partition of a broker that keeps Kafka's rules, behind a network that loses and delays.

    Whatever happens, the log must hold every record once, in the order of sending.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.acc = accumulator(delivery_timeout_s=1e9)
        self.queue = queue_of(self.acc)
        self.sent = 0
        self.log: list[int] = []
        self.epoch = 0
        self.remembered: list[tuple[int, int]] = []
        self.last_sequence = -1
        self.network: list[tuple[ProducerBatch, bytes]] = []
        self.results: list[ProducerBatch] = []

    @rule(count=st.integers(1, 3))
    def send(self, count: int) -> None:
        batch = self.acc.open(self.queue, self.now)
        for _ in range(count):
            batch.builder.append(1, None, b"%d" % self.sent)
            self.sent += 1
        self.acc.close(self.queue)
        self.results.append(batch)

    @rule()
    def take(self) -> None:
        self.now += 10
        for queue in self.acc.ready(self.now):
            batch = self.acc.take(queue)
            self.network.append((batch, bytes(batch.encode())))

    @precondition(lambda self: self.network)
    @rule(answered=st.booleans(), refused=st.booleans())
    def arrive(self, answered: bool, refused: bool) -> None:
        batch, raw = self.network.pop(0)
        code, offset = (ErrorCode.NOT_ENOUGH_REPLICAS, -1) if refused else self.append(raw)
        if answered:
            self.acc.answer(batch, code, self.now, base_offset=offset)
        else:
            self.lose(batch)

    @precondition(lambda self: self.network)
    @rule()
    def break_connection(self) -> None:
        lost = [batch for batch, _ in self.network]
        self.network.clear()
        for batch in lost:
            self.lose(batch)

    @rule()
    def forget_producers(self) -> None:
        """As after an unclean restart; only when nothing doubtful is about, as Kafka assumes."""
        if self.acc.is_idle:
            self.remembered.clear()
            self.last_sequence = -1 if not self.log else 12345

    def lose(self, batch: ProducerBatch) -> None:
        """No answer to this one; those behind it on the connection are lost with it."""
        behind = [other for other, _ in self.network]
        self.network.clear()
        for other in (batch, *behind):
            self.acc.answer(other, ErrorCode.NETWORK_EXCEPTION, self.now)

    def append(self, raw: bytes) -> tuple[ErrorCode, int]:
        header = read_header(raw)
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch:
            if header.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.epoch, self.remembered, self.last_sequence = header.producer_epoch, [], -1
        for sequence, offset in self.remembered[-5:]:
            if sequence == header.base_sequence:
                return ErrorCode.NONE, offset
        if header.base_sequence != self.last_sequence + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.log)
        self.log += [int(r.value or b"") for r in decode_records(raw, header, 1 << 20)]
        self.remembered.append((header.base_sequence, offset))
        self.last_sequence = header.last_sequence
        return ErrorCode.NONE, offset

    @invariant()
    def the_log_is_a_prefix_of_the_sent_records(self) -> None:
        assert self.log == list(range(len(self.log)))

    @invariant()
    def answers_are_true(self) -> None:
        for batch in self.results:
            assert batch.result.error is None
            if batch.result.done:
                assert batch.result.base_offset + batch.records.count <= len(self.log)

    def teardown(self) -> None:
        for _ in range(50):
            self.take()
            while self.network:
                self.arrive(answered=True, refused=False)
        assert self.acc.is_idle
        assert self.log == list(range(self.sent))


OneBroker.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOneBroker = OneBroker.TestCase
