"""One broker's view of the metadata log: keeps the image, commits plans, notifies subscribers.

A plan is a function of the image, so a lost race costs only another call with the newer image.
Plans that are submitted during an append are committed together by the next append.

Each entry is published in three steps: subscribers prepare for it (they create files), the new
image becomes visible, and subscribers follow it (they remove files). The callers of `submit` get
their results after that.

A broker stands for election when it opens the log, when it has a change to write and the controller
is dead, and when the store reports the death of a broker.

One task handles submitted plans and reported changes; it exists only while there are any. A
reported change that cannot be read is retried a second later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.metadata.errors import MetadataError, MetadataFull
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerRecord, Record, decode_records, encode_records
from lakelog.metadata.store.api import (
    BATCH_BYTES_MAX,
    NO_CHANGE,
    Change,
    ControllerTerm,
    MetadataBatch,
    MetadataStore,
    Outcome,
    Snapshot,
)
from lakelog.runtime.api import Random, Tasks, Timer

T = TypeVar("T")
Planner = Callable[[MetadataImage], Plan[T]]

_logger = logging.getLogger(__name__)
_UNKNOWN_TRIES_MAX = 10
_SNAPSHOT_COST_MIN = 1000
_RETRY_S = 1.0


class Subscriber(Protocol):
    """Called for each entry, on the loop; the next entry waits until the call returns.

    `records` is empty when the broker has fallen behind the kept entries and loaded a snapshot:
    compare the images.
    """

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Prepare for the new image, which is not visible yet."""
        ...

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Follow the new image, which is visible now."""
        ...


class Space(Protocol):
    """The space that the store shares with the logs of this broker."""

    def check_reserve(self) -> None:
        """Raise `KafkaError` while the remaining space is reserved for changes that free space."""
        ...

    def note_full(self) -> None:
        """Report that there was no space for a change."""
        ...

    async def free_reserve(self) -> bool:
        """Free the reserved space; return whether there is space now."""
        ...


class UnreservedSpace:
    """A `Space` without a reserve."""

    def check_reserve(self) -> None:
        pass

    def note_full(self) -> None:
        pass

    async def free_reserve(self) -> bool:
        return False


class _Job(NamedTuple):
    plan: Planner[Any]
    future: Any
    from_reserve: bool

    def settle(self, result: object, error: Exception | None = None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


@dataclass(slots=True)
class _Group:
    """Plans that become one entry of the log; `image` is the image after it."""

    image: MetadataImage
    records: list[Record]
    payload: bytearray
    jobs: list[tuple[_Job, object, Exception | None]]


class MetadataLog:
    """The image of one broker, and the way to change it."""

    def __init__(
        self,
        store: MetadataStore,
        tasks: Tasks,
        random: Random,
        *,
        broker_id: int,
        space: Space | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._space = space or UnreservedSpace()
        self._broker_id = broker_id
        self._writer_id = random.bytes(16)
        self.incarnation_id = random.bytes(16)
        self.image = MetadataImage()
        self._serial = 0
        self._term = ControllerTerm(-1, 0)
        self._subscribers: list[Subscriber] = []
        self._jobs: deque[_Job] = deque()
        self._changes = NO_CHANGE
        self._retry: Timer | None = None
        self._opened = False
        self._closed = False
        self._worker: Any = None
        self._snapshotter: Any = None
        self._replay_cost = 0

    async def open(self, *, create: bool) -> None:
        """Register this broker, replay the log and stand for election.

        `create` the log only for an empty data folder. Raises `MetadataError`.
        """
        self._store.watch(self._on_change)
        await self._store.open(create=create)
        try:
            await self._store.register_broker(self._broker_id, self.incarnation_id)
            await self._catch_up()
            self._term = await self._store.elect()
        except BaseException:
            await self._store.close()
            raise
        self._opened = True
        if self._changes:
            self._wake()

    async def close(self) -> None:
        """Finish submitted plans and a due snapshot, reject later plans, and close the store."""
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._worker is not None:
            await self._worker
        if self._snapshotter is not None:  # the worker may have begun it just now
            await self._snapshotter
        await self._store.close()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    async def submit(self, plan: Planner[T], *, from_reserve: bool = False) -> T:
        """Return the plan's result after its records are committed and published.

        The plan may be called several times; only the result of the last call counts. A plan may
        use the reserved space (`from_reserve`) if it frees space or the start depends on it.

        Raises `KafkaError`: the plan's own error; NOT_CONTROLLER when another broker is the
        controller; KAFKA_STORAGE_ERROR when the records were not written; REQUEST_TIMED_OUT when
        this is unknown.
        """
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is shutting down")
        job = _Job(plan, self._tasks.future(), from_reserve)
        self._jobs.append(job)
        self._wake()
        result: T = await job.future
        return result

    def _on_change(self, change: Change) -> None:
        """Accumulates changes while `open` reads: two readers would apply the same entries."""
        self._changes |= change
        if self._opened:
            self._wake()

    def _try_again(self) -> None:
        self._retry = None
        self._wake()

    def _wake(self) -> None:
        if self._worker is None and not self._closed:
            self._worker = self._tasks.spawn(self._work(), name="metadata-log")

    async def _work(self) -> None:
        """Runs until there is no work left; a caller waits for each job, whatever fails."""
        try:
            while self._changes or self._jobs:
                if self._changes:
                    await self._follow_changes()
                if self._jobs:
                    await self._commit_group(self._plan_group())
        except Exception as error:  # noqa: BLE001 - every waiting caller gets it
            _logger.warning("metadata log: %s", error, extra=event("metadata_log_failed"))
            while self._jobs:
                self._jobs.popleft().settle(None, _as_kafka_error(error))
            if self._changes and self._retry is None and not self._closed:
                self._retry = self._tasks.call_later(_RETRY_S, self._try_again)
        finally:
            self._worker = None

    async def _follow_changes(self) -> None:
        """Keeps the changes for a later attempt if this one fails."""
        changes, self._changes = self._changes, NO_CHANGE
        try:
            if Change.ENTRIES in changes:
                await self._catch_up()
            if Change.TERM in changes:
                self._learn(await self._store.controller())
            if Change.BROKERS in changes and self._term.broker_id != self._broker_id:
                self._learn(await self._store.elect())
        except BaseException:
            self._changes |= changes
            raise

    def _learn(self, term: ControllerTerm) -> None:
        assert term.epoch >= self._term.epoch, "terms only rise"
        if term != self._term:
            _logger.info(
                "broker %d is the controller, epoch %d",
                term.broker_id,
                term.epoch,
                extra=event("controller_elected", controller=term.broker_id, epoch=term.epoch),
            )
        self._term = term

    def _plan_group(self) -> _Group:
        """Plan as many waiting jobs as fit one entry, each on the image after the previous one."""
        group = _Group(self.image, [], bytearray(), [])
        end = self.image.end + 1
        while self._jobs:
            job = self._jobs[0]
            try:
                plan = job.plan(group.image)
                if plan.records and not job.from_reserve:
                    self._space.check_reserve()
                payload = encode_records(plan.records)
                if len(payload) > BATCH_BYTES_MAX:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION,
                        "the request has too many changes for one entry of the metadata log",
                    )
                image = group.image.apply_all(plan.records, end) if plan.records else group.image
            except Exception as error:  # noqa: BLE001 - the caller of `submit` gets it
                group.jobs.append((self._jobs.popleft(), None, error))
                continue
            if len(group.payload) + len(payload) > BATCH_BYTES_MAX:
                break
            group.jobs.append((self._jobs.popleft(), plan.result, None))
            group.image = image
            group.records += plan.records
            group.payload += payload
        return group

    async def _commit_group(self, group: _Group) -> None:
        """Settle the group's jobs, or put them back into the queue to be planned again."""
        assert not group.records or group.image.end == self.image.end + 1
        try:
            if group.records and not await self._append(bytes(group.payload)):
                self._jobs.extendleft(job for job, _, _ in reversed(group.jobs))
                group.jobs.clear()
                await self._catch_up()
                return
            if group.records:
                await self._publish(group.image, tuple(group.records))
        except MetadataFull as error:
            await self._repeat_from_reserve(group, error)
            return
        except Exception as error:
            for job, _, _ in group.jobs:
                job.settle(None, _as_kafka_error(error))
            if not isinstance(error, KafkaError | MetadataError):
                raise
            return
        for job, result, failure in group.jobs:
            job.settle(result, failure)
        self._consider_snapshot()

    async def _repeat_from_reserve(self, group: _Group, error: MetadataFull) -> None:
        """Puts back the jobs that may use the reserve, if it can be freed; the others fail."""
        self._space.note_full()
        failed = [job for job, _, _ in group.jobs]
        entitled = [job for job in failed if job.from_reserve]
        if entitled and await self._space.free_reserve():
            self._jobs.extendleft(reversed(entitled))
            failed = [job for job in failed if not job.from_reserve]
        for job in failed:
            job.settle(None, _as_kafka_error(error))

    async def _append(self, payload: bytes) -> bool:
        """Return true once the batch is in the log, false if it lost and the image is behind."""
        if self._term.broker_id != self._broker_id:
            await self._stand_for_election()
        self._serial += 1
        batch = MetadataBatch(self._writer_id, self._serial, self._term.epoch, payload)
        unknown = False
        for _ in range(_UNKNOWN_TRIES_MAX):
            try:
                outcome = (await self._store.append(batch, self.image.end)).outcome
                if outcome is Outcome.DONE:
                    return True
                if outcome is not Outcome.UNKNOWN:
                    return await self._was_mine(outcome)
            except MetadataError as error:
                if unknown:
                    raise _unknown(str(error)) from error
                raise
            unknown = True
        raise _unknown("the metadata store did not report whether the change was written")

    async def _was_mine(self, outcome: Outcome) -> bool:
        """After LOST or FENCED, return whether an earlier attempt had stored the batch."""
        if await self._store.position_of(self._writer_id, self._serial) is not None:
            return True
        if outcome is Outcome.FENCED:
            await self._stand_for_election()
        return False

    async def _stand_for_election(self) -> None:
        self._learn(await self._store.elect())
        if self._term.broker_id != self._broker_id:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"broker {self._term.broker_id} is the controller"
            )

    async def _catch_up(self) -> None:
        """Publish all entries that this broker has not seen. Raises `MetadataError`."""
        read = await self._store.read(self.image.end)
        if read.snapshot is not None:
            records = decode_records(read.snapshot.payload)
            self._replay_cost = 0
            await self._publish(MetadataImage().apply_all(records, read.snapshot.end), ())
        for entry in read.entries:
            assert entry.index == self.image.end, "entries are consecutive"
            entry_records = tuple(decode_records(entry.payload))
            await self._publish(self.image.apply_all(entry_records, entry.index + 1), entry_records)

    async def _publish(self, image: MetadataImage, records: tuple[Record, ...]) -> None:
        old = self.image
        for subscriber in self._subscribers:
            await subscriber.prepare(old, image, records)
        self.image = image
        self._replay_cost += sum(_cost(record, image) for record in records)
        for subscriber in self._subscribers:
            await subscriber.follow(old, image, records)

    def _consider_snapshot(self) -> None:
        """Write a snapshot when replaying costs more than loading one; one at a time."""
        snapshot_cost = self.image.partition_count + len(self.image.topics_by_id)
        if self._replay_cost < max(_SNAPSHOT_COST_MIN, 2 * snapshot_cost):
            return
        if self._snapshotter is None or self._snapshotter.done():
            self._replay_cost = 0
            self._snapshotter = self._tasks.spawn(
                self._write_snapshot(self.image), name="metadata-snapshot"
            )

    async def _write_snapshot(self, image: MetadataImage) -> None:
        payload = await self._tasks.offload(
            "metadata-snapshot", lambda: encode_records(image.to_records())
        )
        try:
            await self._store.write_snapshot(Snapshot(image.end, payload))
        except MetadataFull:
            self._space.note_full()
        except MetadataError as error:
            _logger.warning(
                "metadata snapshot not written: %s", error, extra=event("metadata_snapshot_failed")
            )


def _cost(record: Record, image: MetadataImage) -> int:
    """Return the cost of replaying a record, in partitions touched."""
    return 1 + image.partition_count if isinstance(record, BrokerRecord) else 1


def _unknown(text: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


def _as_kafka_error(error: Exception) -> Exception:
    if isinstance(error, MetadataError):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return error
