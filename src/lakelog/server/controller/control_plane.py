"""The control plane of a broker: the metadata log, the controller, and this broker's place in both.

A single broker is its own controller and needs no others. In a cluster the brokers share a store:
the broker follows its log, registers with the controller of the moment, and reaches the others over
`peers`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from lakelog.base.endpoint import Endpoint
from lakelog.base.events import event
from lakelog.base.uuids import encode_uuid, random_uuid
from lakelog.metadata.controller.brokers import (
    plan_cluster_id,
    plan_forget_epochs,
    plan_register_broker,
)
from lakelog.metadata.errors import MetadataError
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.replica.role import Role
from lakelog.server.authentication import Process
from lakelog.server.controller.controller import Controller
from lakelog.server.controller.declared_levels import DeclaredLevels
from lakelog.server.controller.membership import KeptTopics, Membership
from lakelog.server.controller.relays import ControllerLink, Relays
from lakelog.server.controller.succession import Presence, Succession
from lakelog.server.inter_broker.peer import Peer, Peers, PeerSeams
from lakelog.server.inter_broker.watch import PeerWatch
from lakelog.server.options import Environment, ServeOptions
from lakelog.server.upkeep.shortages import Shortages

logger = logging.getLogger(__name__)


class ControlPlane:
    """From `open` to `close`.

    Args:
        shortages: of the data folder, in which the embedded store is.
    """

    def __init__(
        self, options: ServeOptions, environment: Environment, shortages: Shortages
    ) -> None:
        node_id, tasks, random = options.node_id, environment.tasks, environment.random
        self._options = options
        self._random = random
        self._tasks = tasks
        self.metadata = MetadataLog(
            environment.metadata, tasks, random, broker_id=node_id, space=shortages
        )
        session_s = options.config.get_int("broker.session.timeout.ms") / 1000
        self.peers = PeerWatch(
            Process(node_id, self.metadata.incarnation_id),
            options.listeners[0][0],
            PeerSeams(node_id, environment.net, tasks, environment.clock, random),
            self._report_dead,
            self._on_silence,
            session_s,
        )
        if options.is_clustered:
            self.metadata.use_witnesses(self)
        self.relays = Relays(
            node_id,
            self.metadata,
            partial(self._peer_of, self.peers.own_requests),
            partial(self._peer_of, self.peers.proposals),
            self.peers.silence,
            tasks,
        )
        self.link = ControllerLink(
            node_id, self.metadata, self.peer, environment.clock, tasks, self.relays
        )
        self.controller = Controller(
            node_id,
            self.metadata,
            environment.clock,
            tasks,
            options.config,
            DeclaredLevels(node_id, self.peer),
            self.peers.reachable_brokers,
            self.peers.silence,
        )
        self.membership = Membership(node_id, self.metadata, self.link, self.controller, tasks)
        self.succession = Succession(
            node_id,
            self.metadata,
            lambda: self.peers.called,
            self.peers.silence,
            session_s,
            environment.clock,
            tasks,
        )
        self.metadata.watch_brokers(self._on_brokers)
        self.presence = Presence(
            self.metadata,
            self.relays,
            self.membership.heartbeat,
            self.peers.silence,
            session_s,
            environment.clock,
            tasks,
        )

    @property
    def image(self) -> MetadataImage:
        """The image of the metadata log."""
        return self.metadata.image

    def peer(self, node_id: int) -> Peer | None:
        """Return the connection to a broker, also before this one follows the metadata."""
        return self._peer_of(self.peers.peers, node_id)

    def _peer_of(self, peers: Peers, node_id: int) -> Peer | None:
        self.peers.follow(self.metadata.image)
        return peers.get(node_id)

    def role_elsewhere(self, topic: str | bytes, index: int) -> Role | None:
        """Return this broker's role in a partition that other brokers hold, None for any other."""
        partition = self.image.partition(topic, index)
        if partition is None or self._options.node_id in partition.replicas:
            return None
        return Role.in_image(partition, self._options.node_id)

    async def join_store(self, *, create: bool) -> str | None:
        """Open a metadata store that brokers share; return its cluster id, None in a new store.

        It is opened before the data folder, because a new folder joins the store's cluster.
        create: see `MetadataLog.open`. Raises `MetadataError`.
        """
        await self.metadata.open(create=create)
        while self.image.cluster_id is None and not self.link.is_here:
            await self.link.pause()  # until the controller has chosen the id
            await self.metadata.refresh()
        return self.image.cluster_id

    async def choose_cluster_id(self, cluster_id: str | None) -> str:
        """Return the id of the store, else `cluster_id` of the data folder, else a new one.

        Raises `KafkaError` (INCONSISTENT_CLUSTER_ID) if store and folder disagree.
        """
        fresh = encode_uuid(random_uuid(self._random))
        return await self.metadata.submit(
            lambda image: plan_cluster_id(image, cluster_id, fresh), from_reserve=True
        )

    async def register(
        self,
        bound: tuple[Endpoint, ...],
        advertised: tuple[Endpoint, ...],
        *,
        directory_id: bytes,
        previous_epoch: int,
        kept: KeptTopics,
    ) -> None:
        """Record this start of the broker, which raises its leader epochs. Raises `KafkaError`.

        In a cluster every listener needs an address that others can use. A single broker records
        only the advertised ones: its clients use the address that they have connected to.

        directory_id, previous_epoch, kept: see `Membership.register`.
        """
        given = self._options.config.get("broker.rack")
        rack = given if isinstance(given, str) else None
        if self._options.is_clustered:
            await self.membership.register(
                bound, rack, directory_id=directory_id, previous_epoch=previous_epoch, kept=kept
            )
            return
        node_id, incarnation_id = self._options.node_id, self.metadata.incarnation_id
        await self.metadata.submit(
            lambda image: plan_register_broker(
                image, node_id, incarnation_id, endpoints=advertised, rack=rack
            ),
            from_reserve=True,
        )

    async def forget_epochs(self) -> None:
        """Record that producer epochs assigned so far may be missing from the recovered logs."""
        await self.metadata.submit(plan_forget_epochs, from_reserve=True)

    def _report_dead(self, process: Process) -> None:
        """Report a process that has ended, so that its partitions get new leaders at once."""
        self.controller.note_end(process.node_id)
        work = self._try_report(process)
        self._tasks.spawn(work, name=f"report the end of broker {process.node_id}")

    async def _try_report(self, process: Process) -> None:
        """Report it once: the store notices by itself, later."""
        try:
            await self.metadata.report_dead(process.node_id, process.incarnation_id)
        except MetadataError as error:
            logger.warning(
                "The end of broker %d was not reported: %s",
                process.node_id,
                error,
                extra=event("death_not_reported", broker=process.node_id),
            )

    def _on_silence(self) -> None:
        self.metadata.review()
        self.relays.note_silence()
        self.presence.note_silence()
        self.succession.note_silence()

    def _on_brokers(self) -> None:
        self.relays.note_term()
        self.succession.note_term()

    def check(self, image: MetadataImage) -> None:
        """See `Membership.check`. Raises `RegistrationLost`."""
        self.membership.check(image)

    def may_lead(self, live: Mapping[int, bytes]) -> bool:
        """See `lakelog.metadata.log.Witnesses`."""
        return self.peers.silence.reaches_half(live)

    def seen_s(self, controller_id: int) -> float:
        """See `lakelog.metadata.log.Witnesses`."""
        return self.peers.silence.contact_s(controller_id)

    @property
    def missed_epoch(self) -> int:
        """See `lakelog.metadata.log.Witnesses`."""
        return self.succession.missed_epoch

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Follow a change of the registered brokers."""
        if new.brokers is not old.brokers:
            self.peers.follow(new)
        self.membership.follow(new)

    def stop(self) -> None:
        """Stop acting as the controller and calling other brokers; the log stays open."""
        self.controller.stop()
        self.presence.stop()
        self.succession.stop()
        self.peers.stop()

    async def close(self) -> None:
        """Close the metadata log, see `MetadataLog.close`."""
        await self.metadata.close()
