"""The entries of the log: numbered nodes behind a compare-and-append on their end.

An append is one transaction: check the version of the controller's node, create the entry with its
number, set the end at its version. Sequential nodes would not do: they number every attempt. The
controller's term is a node whose version fences appends, replaced by compare-and-set.

This handle keeps the newest state of the log that it has verified (`chain.py`), in memory and in
its data folder. A log that does not continue this state is refused.
"""

from __future__ import annotations

from lakelog.metadata.errors import (
    MetadataCorrupt,
    MetadataMissing,
    MetadataNotEmpty,
    MetadataUnavailable,
)
from lakelog.metadata.store import api
from lakelog.metadata.store.chain import LogHead, Mark, Marks, first_link, next_link
from lakelog.metadata.store.zookeeper import session as zk
from lakelog.metadata.store.zookeeper.layout import (
    NO_TERM,
    Layout,
    Pointer,
    StoredEntry,
    Tail,
    Term,
    decode_format,
    encode_format,
)
from lakelog.metadata.store.zookeeper.snapshots import Snapshots


class Terms:
    """The newest term that this handle has seen."""

    def __init__(self, session: zk.ZooKeeperSession, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self.newest = NO_TERM
        self._taken: Term | None = None

    async def current(self) -> Term:
        """Return the term in force.

        Raises `MetadataCorrupt` if the ensemble has forgotten a term, and `Disconnected`.
        """
        seen = self.newest  # a watch may see a newer one meanwhile
        await zk.pass_barrier(self._session, self._layout.barrier)
        term = await self.look()
        if term.epoch < seen.epoch:
            raise MetadataCorrupt(
                f"{self._layout.controller} in ZooKeeper is at epoch {term.epoch}, but epoch "
                f"{seen.epoch} was seen before: the ensemble lost writes or was restored"
            )
        return term

    async def look(self, on_change: zk.Notify | None = None) -> Term:
        """Return a term that may be older than the known one. Raises `Disconnected`."""
        path = self._layout.controller
        node = await zk.get_required(self._session, path, on_change)
        term = Term.decode(path, node.data, node.version)
        if term.epoch > self.newest.epoch:
            self.newest = term
        return term

    async def take(self, broker_id: int, incarnation_id: bytes, after: Term) -> Term:
        """Begin a term of this broker unless a newer one than `after` exists; return the term.

        Repeat a call that raised `Disconnected` with the then current term.
        """
        if after == self._taken:  # by an earlier attempt of unknown outcome
            self._taken = None
            return after
        self._taken = Term(broker_id, after.epoch + 1, incarnation_id, after.version + 1)
        put = zk.Put(self._layout.controller, self._taken.encode(), after.version)
        await zk.write_repeatable(self._session, put)
        current = await self.current()
        assert current.epoch > after.epoch, "an election ends with a newer term, of any broker"
        self._taken = None
        return current


_SCANNED_AT_ONCE = 32
_READ_TRIES = 5
_LOST = (
    "the ensemble lost writes, was wiped, was restored from a backup, or belongs to another "
    "cluster; check --metadata or restore the newest state of the ensemble"
)


class EntryLog:
    """One handle on the log. Every call may raise `Disconnected`, and be repeated then."""

    def __init__(
        self,
        session: zk.ZooKeeperSession,
        layout: Layout,
        marks: Marks,
        terms: Terms,
        *,
        entries_kept: int = api.ENTRIES_KEPT,
    ) -> None:
        self._session = session
        self._layout = layout
        self._marks = marks
        self._terms = terms
        self._snapshots = Snapshots(session, layout, entries_kept=entries_kept)
        self._tail = Tail(0, bytes(16), 0)
        self._mark: Mark | None = None
        self._reported_end = 0
        self._attempt: tuple[bytes, int, int] | None = None

    async def open(self, *, create: bool, log_id: bytes) -> None:
        """Find the log, or create it with this id.

        Raises `MetadataMissing`, `MetadataCorrupt` and `MetadataUnsupported`.
        """
        path = self._layout.format
        self._mark = self._marks.read()
        # A refused write is a barrier, too: a server that lags does not know of a new log.
        await zk.write_repeatable(self._session, zk.Put(self._layout.barrier, b""))
        if await self._session.get(path) is None:
            if self._mark is not None:
                raise MetadataCorrupt(
                    f"{path} is missing in ZooKeeper, but this data folder belongs to a log "
                    f"there with {self._mark.end} entries: {_LOST}"
                )
            if not create:
                raise MetadataMissing(
                    f"{path} is missing in ZooKeeper, but there are logs that it described; check "
                    "the path of --metadata, or restore the ensemble"
                )
            await self._create(log_id)
        node = await zk.get_required(self._session, path)
        stored_id = decode_format(path, node.data)
        if self._mark is None:
            self._mark = Mark(stored_id, 0, first_link(stored_id))
            await self._marks.write(self._mark)
        await self.verify()
        self._reported_end = self._tail.end

    async def verify(self) -> None:
        """Raise `MetadataCorrupt` unless the ensemble continues the state that was seen before."""
        head = self._head  # a concurrent call may see a newer state
        mark = head.seen
        await zk.pass_barrier(self._session, self._layout.barrier)
        format_node = await zk.get_required(self._session, self._layout.format)
        if decode_format(self._layout.format, format_node.data) != mark.log_id:
            raise MetadataCorrupt(
                f"{self._layout.root} in ZooKeeper is another log than this data folder's: {_LOST}"
            )
        head.check(mark.end, await self._chain_at(mark.end, await self.refresh()))
        await self._terms.current()

    async def append(self, batch: api.MetadataBatch, expected_end: int) -> api.AppendOutcome:
        term = self._terms.newest
        if term.epoch != batch.controller_epoch:
            term = await self._terms.current()
        tail = self._tail if self._tail.end == expected_end else await self.refresh()
        if term.epoch != batch.controller_epoch or tail.end != expected_end:
            fenced = term.epoch != batch.controller_epoch
            return api.AppendOutcome(
                api.EntryOutcome.FENCED if fenced else api.EntryOutcome.LOST, tail.end
            )
        new = Tail(expected_end + 1, next_link(tail.chain, expected_end, batch), tail.version + 1)
        self._attempt = (batch.writer_id, batch.serial, expected_end)
        stored = StoredEntry(
            batch.controller_epoch, batch.writer_id, batch.serial, new.chain, batch.payload
        )
        try:
            refusal = await self._session.write(
                zk.Check(self._layout.controller, term.version),
                zk.Create(self._layout.entry(expected_end), stored.encode()),
                zk.Put(self._layout.end, new.encode(), tail.version),
            )
        except zk.OutcomeUnknown:
            return api.AppendOutcome(api.EntryOutcome.UNKNOWN, -1)
        if refusal is None:
            self._tail = new
            if self._reported_end == expected_end:
                self._reported_end = new.end
            await self._see(new)
            return api.AppendOutcome(api.EntryOutcome.DONE, new.end)
        tail = await self.refresh()
        return api.AppendOutcome(
            api.EntryOutcome.LOST if refusal.operation else api.EntryOutcome.FENCED, tail.end
        )

    async def position_of(self, writer_id: bytes, serial: int) -> int | None:
        """Raises `MetadataUnavailable` if the entry of an unknown outcome was trimmed since."""
        tail = await self.refresh()
        if self._attempt is not None and self._attempt[:2] == (writer_id, serial):
            return await self._find_attempt(writer_id, serial, self._attempt[2], tail)
        first = (await self._snapshots.pointer()).first
        for end in range(tail.end, first, -_SCANNED_AT_ONCE):
            start = max(first, end - _SCANNED_AT_ONCE)
            stored = await self._entries(start, end) or []
            for index in range(start + len(stored) - 1, start - 1, -1):
                if stored[index - start].writer_id == writer_id:
                    return index if stored[index - start].serial == serial else None
        return None

    async def read(self, from_index: int) -> api.LogRead:
        """Read from the newest snapshot, or from entries alone. Raises `MetadataCorrupt`."""
        # Also if an end beyond `from_index` is known: later entries may have been committed since.
        tail = await self.refresh()
        for _ in range(_READ_TRIES):  # a snapshot may replace these entries meanwhile
            pointer = await self._snapshots.pointer()
            if pointer.end > tail.end:
                tail = await self.refresh()
            snapshot, start = None, from_index
            if pointer.end and (from_index == 0 or from_index < pointer.first):
                payload = await self._snapshots.load(pointer)
                if payload is None:
                    continue
                snapshot, start = api.Snapshot(pointer.end, payload), pointer.end
            chain = await self._chain_at(start, tail, pointer)
            stored = await self._entries(start, tail.end)
            if stored is not None:
                await self._follow(start, chain, stored, tail)
                entries = (api.Entry(start + n, entry.payload) for n, entry in enumerate(stored))
                return api.LogRead(snapshot, tuple(entries))
        raise MetadataCorrupt(f"{self._layout.root} in ZooKeeper: entries before {tail.end} miss")

    async def write_snapshot(self, snapshot: api.Snapshot) -> None:
        """Raises `MetadataUnavailable` if this handle's term is over."""
        pointer = await self._snapshots.pointer()
        if pointer.end > snapshot.end:
            return
        tail = await self.refresh()
        assert snapshot.end <= tail.end, "a snapshot is of committed entries"
        chain = await self._chain_at(snapshot.end, tail, pointer)
        if chain is None:
            raise MetadataUnavailable(f"entry {snapshot.end - 1} was trimmed")
        await self._snapshots.write(snapshot, chain, self._terms.newest)

    async def refresh(self) -> Tail:
        """Return the current end. Raises `MetadataCorrupt` if it is below one seen before."""
        # A watch may see a newer end meanwhile.
        seen = self._seen._replace(end=max(self._seen.end, self._tail.end))
        await zk.pass_barrier(self._session, self._layout.barrier)
        tail = await self._stored_tail()
        self._head._replace(seen=seen).check(tail.end, None)
        self._keep(tail)
        return tail

    async def state(self, controller_epoch: int) -> api.LogState:
        """Return the current end, with the controller epoch that the caller has read."""
        tail = await self.refresh()
        return api.LogState(self._seen.log_id, tail.end, tail.chain, controller_epoch)

    async def load(self, state: api.LogState, payload: bytes) -> None:
        """Create a log that ends at `state`: the chunks of its snapshot first, the log at once.

        Chunks of an earlier attempt are replaced. Raises `MetadataNotEmpty` if there is a log.
        """
        await self._create_parents()
        layout = self._layout
        names = await self._session.children(layout.root)
        other = [name for name in names or () if f"{layout.root}/{name}" != layout.snapshots]
        if other:
            raise MetadataNotEmpty(
                f"{layout.root}/{other[0]} exists already in ZooKeeper; choose another path"
            )
        await zk.write_repeatable(self._session, zk.Create(layout.snapshots))
        pointer = await self._snapshots.prepare(state, payload)
        refusal = await zk.write_repeatable(
            self._session,
            zk.Create(layout.format, encode_format(state.log_id)),
            zk.Create(layout.controller, NO_TERM._replace(epoch=state.controller_epoch).encode()),
            zk.Create(layout.end, Tail(state.end, state.chain, 0).encode()),
            zk.Create(layout.snapshot, pointer.encode()),
            *(
                zk.Create(path)
                for path in (layout.log, layout.brokers, layout.heartbeats, layout.barrier)
            ),
        )
        if refusal is not None:
            raise MetadataNotEmpty(f"a log was created in {layout.root} in ZooKeeper meanwhile")

    async def look(self, on_change: zk.Notify) -> bool:
        """Return whether others have added entries since the last look.

        The answer may be old; `on_change` is called after the end moves on.
        """
        tail = await self._stored_tail(on_change)
        self._keep(tail)
        is_news = tail.end > self._reported_end
        self._reported_end = max(self._reported_end, tail.end)
        return is_news

    @property
    def _head(self) -> LogHead:
        return LogHead(f"{self._layout.root} in ZooKeeper", self._seen, _LOST)

    @property
    def _seen(self) -> Mark:
        assert self._mark is not None, "the log is open"
        return self._mark

    async def _create(self, log_id: bytes) -> None:
        """Create the nodes of an empty log, unless another broker does so first."""
        layout = self._layout
        await self._create_parents()
        await zk.write_repeatable(
            self._session,
            zk.Create(layout.format, encode_format(log_id)),
            zk.Create(layout.controller, NO_TERM.encode()),
            zk.Create(layout.end, Tail(0, first_link(log_id), 0).encode()),
            *(
                zk.Create(path)
                for path in (
                    layout.log,
                    layout.snapshot,
                    layout.snapshots,
                    layout.brokers,
                    layout.heartbeats,
                    layout.barrier,
                )
            ),
        )

    async def _create_parents(self) -> None:
        names = self._layout.root.split("/")
        for depth in range(2, len(names) + 1):
            await zk.write_repeatable(self._session, zk.Create("/".join(names[:depth])))

    async def _stored_tail(self, on_change: zk.Notify | None = None) -> Tail:
        path = self._layout.end
        node = await zk.get_required(self._session, path, on_change)
        return Tail.decode(path, node.data, node.version)

    def _keep(self, tail: Tail) -> None:
        if tail.end >= self._tail.end:
            self._tail = tail

    async def _find_attempt(
        self, writer_id: bytes, serial: int, index: int, tail: Tail
    ) -> int | None:
        if index >= tail.end:
            return None
        stored = await self._entries(index, index + 1)
        if stored is None:
            raise MetadataUnavailable(
                f"entry {index} was trimmed before its outcome was known: repeat the change"
            )
        return index if (stored[0].writer_id, stored[0].serial) == (writer_id, serial) else None

    async def _entries(self, start: int, end: int) -> list[StoredEntry] | None:
        """Return these entries, or none if some were trimmed."""
        paths = [self._layout.entry(index) for index in range(start, end)]
        nodes = await zk.get_all(self._session, paths)
        if None in nodes:
            # The session may be a new one, on a server without the writes that the former one saw.
            await zk.pass_barrier(self._session, self._layout.barrier)
            nodes = await zk.get_all(self._session, paths)
        contents = [node.data for node in nodes if node is not None]
        if len(contents) < len(paths):
            return None
        return [StoredEntry.decode(path, data) for path, data in zip(paths, contents, strict=True)]

    async def _chain_at(
        self, index: int, tail: Tail, pointer: Pointer | None = None
    ) -> bytes | None:
        """Return the stored chain before an entry, or none if it was trimmed."""
        if index == 0:
            return first_link(self._seen.log_id)
        if index == tail.end:
            return tail.chain
        if pointer is not None and index == pointer.end:
            return pointer.chain
        before = await self._entries(index - 1, index)
        return None if before is None else before[0].chain

    async def _follow(
        self, start: int, chain: bytes | None, stored: list[StoredEntry], tail: Tail
    ) -> None:
        """Require that these entries continue each other and the state that was seen before."""
        end = start + len(stored)
        chain = self._head.follow(start, chain, ((entry.batch(), entry.chain) for entry in stored))
        if chain is None or end != tail.end:
            return
        seen = self._seen
        if chain != tail.chain or (end == seen.end and chain != seen.chain):
            raise self._head.forked()
        await self._see(tail)

    async def _see(self, tail: Tail) -> None:
        """Keep a verified state of the log."""
        if tail.end > self._seen.end:
            self._mark = Mark(self._seen.log_id, tail.end, tail.chain)
            await self._marks.write(self._mark)
