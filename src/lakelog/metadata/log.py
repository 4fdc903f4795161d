"""One broker's view of the metadata log: keeps the image, commits plans, notifies subscribers.

A plan is a function of the image, so a lost race costs only another call with the newer image.
Plans that are submitted during an append are committed together by the next append.

Each entry is published in three steps: subscribers prepare for it (they create files), the new
image becomes visible, and subscribers follow it (they remove files). The callers of `submit` get
their results after that.

A broker stands for election when it opens the log, when it has a change to write and the controller
is dead, and when the store reports the death of a broker. A broker that does not serve yet answers
no requests, so it stands only if no other broker serves, either. A controller that does not serve
is replaced, although it is alive, after a broker has got no answer from it (`doubt`). A serving
controller is replaced if most brokers get no answer from it (`Witnesses.missed_epoch`).

One task handles submitted plans and reported changes; it exists only while there are any. A
reported change that cannot be read is retried, after a pause that doubles, and one line in the log
reports the begin of such a time and one its end. After a lasting failure (`is_lasting`) the log
accepts no plan and reads nothing more: the store has another history than this broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.events import event
from lakelog.metadata.errors import MetadataError, MetadataFull, is_lasting
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan, PlanGroup, Planner, PlanQueue, SubmittedPlan, taking_effect
from lakelog.metadata.records import Record, decode_records
from lakelog.metadata.snapshots import Snapshots
from lakelog.metadata.store import api
from lakelog.runtime.api import Random, Tasks, Timer

T = TypeVar("T")

_logger = logging.getLogger(__name__)
_UNKNOWN_TRIES_MAX = 10
"""Attempts to append a batch while the store does not report the outcome."""
_RETRY_S = 1.0
_RETRY_S_MAX = 8.0
"""Seconds until a reported change that could not be read is read again: at first, and at most."""


class Subscriber(Protocol):
    """Called for each entry, on the loop; the next entry waits until the call returns.

    One call stands for all entries of a transaction (`plan.py`), after the last one.
    `records` is empty when the broker has fallen behind the kept entries and loaded a snapshot:
    compare the images.
    """

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Prepare for the new image, which is not visible yet. An error stops the publication."""
        ...

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        """Follow the new image, which is visible now."""
        ...


class Witnesses(Protocol):
    """The view that the other brokers and this one have of each other, beside the store."""

    def may_lead(self, live: Mapping[int, bytes]) -> bool:
        """Return whether this broker reaches enough of the live brokers to be the controller."""
        ...

    def seen_s(self, controller_id: int) -> float:
        """Return when the controller last saw this broker, on the monotonic clock, at the earliest.

        Infinite if it cannot have lost sight of it.
        """
        ...

    @property
    def missed_epoch(self) -> int:
        """The epoch of a term whose live holder most live brokers miss, -1 without one."""
        ...


class _Joining(NamedTuple):
    """A subscriber that knows an older image."""

    subscriber: Subscriber
    image: MetadataImage
    done: Any


class MetadataLog:
    """The image of one broker, and the way to change it."""

    def __init__(
        self,
        store: api.MetadataStore,
        tasks: Tasks,
        random: Random,
        *,
        broker_id: int,
        space: api.Space | None = None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._space = space or api.UnreservedSpace()
        self._broker_id = broker_id
        self._writer_id = random.bytes(16)
        # Of this process, not of the broker: a process that starts again must not pass for the
        # earlier one, whose requests may still be under way.
        self.incarnation_id = random.bytes(16)
        self.image = MetadataImage()
        self._serial = 0
        self._term = api.ControllerTerm(-1, 0)
        self._serves = False
        self._witnesses: Witnesses | None = None
        self._doubted = -1
        """The epoch of a controller that has not answered."""
        self._subscribers: list[Subscriber] = []
        self._queue = PlanQueue(self._space, store.entry_bytes_max)
        self._snapshots = Snapshots(store, tasks, self._space)
        self._changes = api.NO_CHANGE
        self._on_brokers: list[Callable[[], object]] = []
        self._on_failure: Callable[[MetadataError], object] = lambda error: None
        self._failure: MetadataError | None = None
        self._retry: Timer | None = None
        self._retry_s = _RETRY_S
        self._opened = False
        self._closed = False
        self._worker: Any = None
        self._joining: list[_Joining] = []

    async def open(self, *, create: bool) -> None:
        """Register this broker, replay the log and stand for election.

        `create` the log only for an empty data folder. Raises `MetadataError`.
        """
        # Before the first read, so that no change between them is missed.
        self._store.watch(self._on_change)
        await self._store.open(create=create)
        try:
            await self._store.register_broker(self._broker_id, self.incarnation_id)
            await self._catch_up()
            self._term = await self._stand()
        except BaseException:
            await self._store.close()
            raise
        self._opened = True
        if self._changes:
            self._wake()

    async def close(self) -> None:
        """Finish submitted plans and a due snapshot, reject later plans, and close the store.

        Raises nothing for plans that fail meanwhile: their callers get the errors.
        """
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        if self._worker is not None:
            await self._worker
        await self._snapshots.close()  # after the worker, which may have begun one
        await self._store.close()

    @property
    def broker_id(self) -> int:
        """The node id of this broker."""
        return self._broker_id

    @property
    def controller_id(self) -> int:
        """The broker that is the controller, as far as this one knows; -1 for none.

        A former process of this broker is none.
        """
        is_former = self._term.broker_id == self._broker_id and not self._is_controller
        return -1 if is_former else self._term.broker_id

    @property
    def _is_controller(self) -> bool:
        return self._term[::2] == (self._broker_id, self.incarnation_id)

    def serve(self) -> None:
        """Stand for election from now on although other brokers serve: this one does, too."""
        self._serves = True
        self._on_change(api.Change.BROKERS | api.Change.TERM)

    def use_witnesses(self, witnesses: Witnesses) -> None:
        """Be the controller only while `witnesses` allow it."""
        self._witnesses = witnesses

    def review(self) -> None:
        """Stand for election, or resign, as the changed view of the witnesses wants it."""
        self._on_change(api.Change.BROKERS)

    def doubt(self) -> None:
        """Replace the controller at the next `refresh` unless it serves: it has not answered."""
        self._doubted = self._term.epoch

    def watch_brokers(self, callback: Callable[[], object]) -> None:
        """Call `callback` after brokers may have registered, died, or become the controller."""
        self._on_brokers.append(callback)

    def watch_failure(self, callback: Callable[[MetadataError], object]) -> None:
        """Call `callback` once, after a failure that only a new process may overcome."""
        self._on_failure = callback

    @property
    def heartbeat_s(self) -> float:
        """When this broker was last seen by the store (`MetadataStore.heartbeat_s`)."""
        return self._store.heartbeat_s

    @property
    def contact_s(self) -> float:
        """When this broker was last seen by the controller (`Witnesses.seen_s`)."""
        witnesses = self._witnesses
        return float("inf") if witnesses is None else witnesses.seen_s(self.controller_id)

    @property
    def term(self) -> api.ControllerTerm:
        """The newest term that this broker knows."""
        return self._term

    async def live_brokers(self) -> Mapping[int, bytes]:
        """Return the incarnation ids of the live brokers by id. Raises `MetadataError`."""
        try:
            return await self._store.live_brokers()
        except MetadataError as error:
            self._note_lasting(error)
            raise

    async def beating_brokers(self, within_s: float) -> Mapping[int, bytes]:
        """See `MetadataStore.beating_brokers`. Raises `MetadataError`."""
        return await self._store.beating_brokers(within_s)

    async def report_dead(self, broker_id: int, incarnation_id: bytes) -> None:
        """Have a process that has ended leave the live brokers at once. Raises `MetadataError`."""
        await self._store.report_dead(broker_id, incarnation_id)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` for each later entry, in the order of subscription."""
        self._subscribers.append(subscriber)

    async def subscribe_since(self, image: MetadataImage, subscriber: Subscriber) -> None:
        """Have `subscriber` follow the difference to the image that it knows, then subscribe it.

        Raises its errors.
        """
        if self._failure is not None:
            raise _as_kafka_error(self._failure)
        joining = _Joining(subscriber, image, self._tasks.future())
        self._joining.append(joining)
        self._wake()
        await joining.done

    async def refresh(self) -> None:
        """Return once the image has every entry that was committed before this call.

        Stands for election if the controller is dead. Raises `KafkaError` as `submit`.
        """
        self._changes |= ~api.NO_CHANGE
        await self.catch_up()

    async def refresh_if_possible(self) -> None:
        """Refresh; ignore a failure that may pass. Raises `KafkaError` after a lasting one."""
        try:
            await self.refresh()
        except KafkaError:
            if self._failure is not None or self._closed:
                raise

    async def catch_up(self) -> None:
        """As `refresh`, but stand for no election: read the entries, then the term."""
        # An empty plan is complete only after the reported changes were read, so its result proves
        # that the image is at least as new as this call.
        self._changes |= api.Change.ENTRIES | api.Change.TERM
        await self.submit(lambda image: Plan((), None))

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
        if self._failure is not None:
            raise _as_kafka_error(self._failure)
        submitted = SubmittedPlan(plan, self._tasks.future(), from_reserve)
        self._queue.add(submitted)
        self._wake()
        result: T = await submitted.future
        return result

    def _on_change(self, change: api.Change) -> None:
        """Keep a change for the worker; while `open` reads, a worker would apply entries twice."""
        self._changes |= change
        if self._opened:
            self._wake()

    def _try_again(self) -> None:
        self._retry = None
        self._wake()

    def _wake(self) -> None:
        if self._worker is None and not self._closed and self._failure is None:
            self._worker = self._tasks.spawn(self._work(), name="metadata-log")

    async def _work(self) -> None:
        """Run until no work is left. A failure completes all waiting plans: their callers wait."""
        try:
            # One worker does everything in turn. Images are therefore published in the order of the
            # log, and no plan is made on an image that another plan is just changing.
            while self._changes or self._queue or self._joining:
                while self._joining:
                    await self._join(self._joining.pop())
                if self._changes:
                    await self._follow_changes()
                    self._note_success()
                if self._queue:
                    await self._commit_group(self._queue.next_group(self.image))
        except Exception as error:  # noqa: BLE001 - every waiting caller gets it
            self._note_lasting(error)
            self._queue.fail(_as_kafka_error(error))
            while self._failure is not None and self._joining:
                self._joining.pop().done.set_exception(error)
            if self._failure is None and self._retry is None and not self._closed:
                self._retry_later(error)
        finally:
            self._worker = None

    def _retry_later(self, error: Exception) -> None:
        if self._retry_s == _RETRY_S:
            _logger.warning("metadata log: %s", error, extra=event("metadata_log_failed"))
        if self._changes:
            self._retry = self._tasks.call_later(self._retry_s, self._try_again)
            self._retry_s = min(2 * self._retry_s, _RETRY_S_MAX)

    def _note_success(self) -> None:
        if self._retry_s != _RETRY_S:
            _logger.info("metadata log: recovered", extra=event("metadata_log_recovered"))
        self._retry_s = _RETRY_S

    def _note_lasting(self, error: Exception) -> None:
        """Report the first failure after which this store is of no more use."""
        if self._failure is None and isinstance(error, MetadataError) and is_lasting(error):
            self._failure = error
            self._on_failure(error)

    async def _join(self, joining: _Joining) -> None:
        """Only the worker publishes, so no image is published meanwhile."""
        try:
            if self.image is not joining.image:
                await joining.subscriber.prepare(joining.image, self.image, ())
                await joining.subscriber.follow(joining.image, self.image, ())
        except Exception as error:  # noqa: BLE001 - the caller of `subscribe_since` gets it
            joining.done.set_exception(error)
            return
        self._subscribers.append(joining.subscriber)
        joining.done.set_result(None)

    async def _follow_changes(self) -> None:
        """Read reported changes; keep them for a later attempt if this one fails."""
        changes, self._changes = self._changes, api.NO_CHANGE
        try:
            if api.Change.ENTRIES in changes:
                await self._catch_up()
            # After the entries: a new controller plans on an image that has every entry of the term
            # before.
            if api.Change.TERM in changes:
                self._learn(await self._store.controller())
            # The dead broker may have been the controller, whose term a live one keeps. After a
            # resignation no broker has the term.
            if api.Change.BROKERS in changes or self._term.broker_id < 0:
                self._learn(await self._stand_or_resign())
            # A new term matters as well: brokers that died under the earlier controller may not be
            # fenced yet.
            if changes & (api.Change.BROKERS | api.Change.TERM):
                for callback in self._on_brokers:
                    callback()
        except BaseException:
            self._changes |= changes
            raise

    def _learn(self, term: api.ControllerTerm) -> None:
        # An older term would let this broker send its changes to a controller that was replaced.
        assert term.epoch >= self._term.epoch, "terms only rise"
        if term != self._term:
            _logger.info(
                "broker %d is the controller, epoch %d",
                term.broker_id,
                term.epoch,
                extra=event("controller_elected", controller=term.broker_id, epoch=term.epoch),
            )
        self._term = term

    async def _commit_group(self, group: PlanGroup) -> None:
        """Complete the group's plans, or put them back into the queue to be planned again."""
        try:
            if not await self._write(group):
                self._queue.put_back(group.plans)
                # The results belong to an image that lost; the plans are called again with the
                # newer one.
                group.completed.clear()
                await self._catch_up()
                return
        except MetadataFull as error:
            await self._repeat_from_reserve(group, error)
            return
        except Exception as error:
            self._note_lasting(error)
            for submitted in group.plans:
                submitted.complete(None, _as_kafka_error(error))
            if not isinstance(error, KafkaError | MetadataError):
                raise
            return
        assert not group.entries or self.image.end == group.entries[-1].image.end
        for submitted, result, failure in group.completed:
            submitted.complete(result, failure)
        self._snapshots.write_if_due(self.image)

    async def _write(self, group: PlanGroup) -> bool:
        """Append and publish the entries; return false if one lost and the image is behind."""
        for entry in group.entries:
            assert entry.image.end == self.image.end + 1
            # The first entry of a group may be in the log when a later one loses. Then it begins a
            # transaction that never ends, and the next plan aborts it (KIP-868).
            if not await self._append(entry.payload):
                return False
            is_last = entry is group.entries[-1]
            await self._publish(entry.image, tuple(group.records) if is_last else None)
        return True

    async def _repeat_from_reserve(self, group: PlanGroup, error: MetadataFull) -> None:
        """Put back the plans that may use the reserve, if it can be freed; fail the others."""
        self._space.note_full()
        failed = group.plans
        entitled = [submitted for submitted in failed if submitted.from_reserve]
        if entitled and await self._space.free_reserve():
            self._queue.put_back(entitled)
            failed = [submitted for submitted in failed if not submitted.from_reserve]
        for submitted in failed:
            submitted.complete(None, _as_kafka_error(error))

    async def _append(self, payload: bytes) -> bool:
        """Return true once the batch is in the log, false if it lost and the image is behind."""
        # The store rejects batches of an old epoch in any case. This check spares a broker that
        # knows better the attempt.
        if not self._is_controller:
            await self._stand_for_election()
        # Each batch has a serial of its own, by which `position_of` finds it after an unknown
        # outcome.
        self._serial += 1
        batch = api.MetadataBatch(self._writer_id, self._serial, self._term.epoch, payload)
        unknown = False
        for _ in range(_UNKNOWN_TRIES_MAX):
            try:
                outcome = (await self._store.append(batch, self.image.end)).outcome
                if outcome is api.EntryOutcome.DONE:
                    return True
                if outcome is not api.EntryOutcome.UNKNOWN:
                    return await self._was_mine(outcome)
            except MetadataError as error:
                if unknown:
                    raise _unknown(str(error)) from error
                raise
            # An error after an unknown outcome proves nothing about the first attempt.
            unknown = True
        raise _unknown("the metadata store did not report whether the change was written")

    async def _was_mine(self, outcome: api.EntryOutcome) -> bool:
        """After LOST or FENCED, return whether an earlier attempt had stored the batch."""
        if await self._store.position_of(self._writer_id, self._serial) is not None:
            return True
        # Only now: winning a term would not show whether the batch is in the log.
        if outcome is api.EntryOutcome.FENCED:
            await self._stand_for_election()
        return False

    async def _stand_or_resign(self) -> api.ControllerTerm:
        if not self._is_controller:
            return await self._stand()
        if self._may_lead(await self._store.live_brokers()):
            return self._term
        _logger.warning(
            "This broker reaches fewer than half of the live brokers, and resigns as controller",
            extra=event("controller_resigned", epoch=self._term.epoch),
        )
        return await self._store.resign(self._term.epoch)

    def _may_lead(self, live: Mapping[int, bytes]) -> bool:
        return self._witnesses is None or self._witnesses.may_lead(live)

    async def _stand(self) -> api.ControllerTerm:
        """Take the term unless a live process holds it, or another broker is to take it.

        Returns the term in force afterwards.
        """
        live = await self._store.live_brokers()
        serving = _serving(self.image, live)
        is_behind = not self._serves and serving - {self._broker_id}
        if is_behind or not self._may_lead(live):
            # A serving broker takes the term of a dead controller as soon as it learns of it.
            return await self._store.controller()
        missed = -1 if self._witnesses is None else self._witnesses.missed_epoch
        # The older of the two epochs is of a former term.
        past = missed if self._term.broker_id in serving else max(missed, self._doubted)
        return await self._store.elect(past=past)

    async def _stand_for_election(self) -> None:
        self._learn(await self._stand())
        if not self._is_controller:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"broker {self._term.broker_id} is the controller"
            )

    async def _catch_up(self) -> None:
        """Publish all entries that this broker has not seen. Raises `MetadataError`."""
        # The store returns a snapshot only if entries after `image.end` have been removed, so a
        # broker that keeps up never loads one.
        read = await self._store.read(self.image.end)
        if read.snapshot is not None:
            records = decode_records(read.snapshot.payload)
            self._snapshots.note_loaded()
            # From an empty image: a snapshot is the whole state, and records that it does not
            # contain are deleted.
            await self._publish(MetadataImage().apply_all(records, read.snapshot.end), ())
        for entry in read.entries:
            assert entry.index == self.image.end, "entries are consecutive"
            entry_records = tuple(decode_records(entry.payload))
            image = self.image.apply_all(entry_records, entry.index + 1)
            await self._publish(image, taking_effect(self.image, image, entry_records))

    async def _publish(self, image: MetadataImage, records: tuple[Record, ...] | None) -> None:
        """Make an image visible after subscribers have prepared for it.

        records: that take effect with the image, see `Subscriber`; None if it shows nothing new.
        """
        old = self.image
        assert image.end > old.end, "the image only moves forward"
        if records is None:
            self.image = image
            return
        for subscriber in self._subscribers:
            await subscriber.prepare(old, image, records)
        # No subscriber may serve a topic before its logs exist, nor after it has removed them.
        self.image = image
        self._snapshots.note_replayed(records, image)
        for subscriber in self._subscribers:
            await subscriber.follow(old, image, records)


def _serving(image: MetadataImage, live: Mapping[int, bytes]) -> set[int]:
    """Return the brokers whose live processes have caught up once, and are not fenced since."""
    return {
        broker.broker_id
        for broker in image.brokers.values()
        if not broker.is_fenced and live.get(broker.broker_id) == broker.incarnation_id
    }


def _unknown(text: str) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)


def _as_kafka_error(error: Exception) -> Exception:
    if isinstance(error, MetadataError):
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return error
