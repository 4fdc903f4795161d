"""The metadata images of all brokers: equal at equal index, with current members in each ISR."""

from __future__ import annotations

from collections.abc import Callable, Set
from hashlib import blake2b

from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import MetadataImage, TopicImage
from lakelog.metadata.records import encode_records
from lakelog.replica.partition import Partition
from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law

FindLeader = Callable[[bytes, PartitionImage], Partition | None]


class ImageHistory:
    """All images that brokers have had.

    Args:
        leader_of: returns the partition as its leader has it, given topic id and state; None if
            the leader is down, or has another epoch by now.
    """

    def __init__(self, findings: Findings, leader_of: FindLeader) -> None:
        self._findings = findings
        self._leader_of = leader_of
        self._digests: dict[int, bytes] = {}
        self.newest = MetadataImage()
        self.removed: Set[int] = frozenset()
        """Node ids of brokers that will not return."""

    def note(self, broker: str, image: MetadataImage) -> None:
        """Check an image that a broker has now."""
        digest = blake2b(encode_records(image.to_records()), digest_size=16).digest()
        known = self._digests.setdefault(image.end, digest)
        self._findings.counts["images"] += 1
        self._findings.expect(
            Law.SAME_IMAGE, known == digest, f"{broker} has another image at index {image.end}"
        )
        if image.end > self.newest.end:
            before, self.newest = self.newest, image
            self._check_members(before, image)

    @property
    def lacking(self) -> list[str]:
        """Partitions of the newest image with a replica that is not in sync, and their ISRs.

        Replicas on removed brokers do not count.
        """
        return [
            f"{topic.name}-{state.partition}: {state.isr} of {state.replicas}"
            for topic in self._topics()
            for _, state in sorted(topic.partitions.items())
            if set(state.isr) != set(state.replicas) - self.removed or state.leader < 0
        ]

    def _topics(self) -> list[TopicImage]:
        image = self.newest
        return [image.topics_by_id[topic_id] for _, topic_id in sorted(image.topic_ids.items())]

    def _check_members(self, before: MetadataImage, image: MetadataImage) -> None:
        for topic in self._topics():
            old = before.topic_by_id(topic.topic_id)
            if old is topic:
                continue
            for index, state in sorted(topic.partitions.items()):
                known = old.partition(index) if old is not None else None
                name = f"{topic.name}-{index}"
                fenced = image.fenced.intersection(state.isr)
                self._findings.expect(
                    Law.CURRENT_MEMBERS,
                    not fenced,
                    f"{name} has the ISR {state.isr} at {image.end}, and {fenced} are fenced",
                )
                if known is not None:
                    self._check_joined(topic.topic_id, name, known, state, image)

    def _check_joined(
        self,
        topic_id: bytes,
        name: str,
        known: PartitionImage,
        state: PartitionImage,
        image: MetadataImage,
    ) -> None:
        leader = self._leader_of(topic_id, known)
        for node_id in sorted(set(state.isr) - set(known.isr)):
            follower = leader.followers.get(node_id) if leader is not None else None
            is_elected = node_id == state.leader and node_id in known.elr
            if follower is None or is_elected:
                continue  # an eligible replica leads without a word of the former leader
            self._findings.counts["replicas in sync again"] += 1
            self._findings.expect(
                Law.CURRENT_MEMBERS,
                follower.broker_epoch >= image.brokers[node_id].epoch,
                f"{name}: broker {node_id} joined the ISR at {image.end} with the epoch "
                f"{follower.broker_epoch}, and has {image.brokers[node_id].epoch}",
            )
