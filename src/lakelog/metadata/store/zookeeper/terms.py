"""The controller's term: a node whose version fences appends, replaced by compare-and-set."""

from __future__ import annotations

from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.store.zookeeper.layout import NO_TERM, Layout, Term
from lakelog.metadata.store.zookeeper.session import (
    Notify,
    Put,
    Session,
    get_required,
    pass_barrier,
    write_repeatable,
)


class Terms:
    """The newest term that this handle has seen."""

    def __init__(self, session: Session, layout: Layout) -> None:
        self._session = session
        self._layout = layout
        self.known = NO_TERM
        self._taken: Term | None = None

    async def current(self) -> Term:
        """Return the term in force.

        Raises `MetadataCorrupt` if the ensemble has forgotten a term, and `Disconnected`.
        """
        known = self.known  # a watch may see a newer one meanwhile
        await pass_barrier(self._session, self._layout.barrier)
        term = await self.look()
        if term.epoch < known.epoch:
            raise MetadataCorrupt(
                f"{self._layout.controller} in ZooKeeper is at epoch {term.epoch}, but epoch "
                f"{known.epoch} was seen before: the ensemble lost writes or was restored"
            )
        return term

    async def look(self, on_change: Notify | None = None) -> Term:
        """Return a term that may be older than the known one. Raises `Disconnected`."""
        path = self._layout.controller
        node = await get_required(self._session, path, on_change)
        term = Term.decode(path, node.data, node.version)
        if term.epoch > self.known.epoch:
            self.known = term
        return term

    async def take(self, broker_id: int, incarnation_id: bytes, after: Term) -> Term:
        """Begin a term of this broker unless a newer one than `after` exists; return the term.

        Repeat a call that raised `Disconnected` with the then current term.
        """
        if after == self._taken:  # by an earlier attempt of unknown outcome
            self._taken = None
            return after
        self._taken = Term(broker_id, after.epoch + 1, incarnation_id, after.version + 1)
        put = Put(self._layout.controller, self._taken.encode(), after.version)
        await write_repeatable(self._session, put)
        current = await self.current()
        self._taken = None
        return current
