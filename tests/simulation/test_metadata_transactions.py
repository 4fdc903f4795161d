"""A controller that dies between the entries of one change, in a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.metadata import plan as metadata_plan
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerLost, PartitionRecord, Record
from repetitions import first_of
from simulator.cluster.image_history import ImageHistory
from simulator.cluster.plan import STORES, ClusterPlan
from simulator.cluster.world import ClusterWorld
from simulator.execution import run_world


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_a_change_is_whole_or_absent_on_every_broker(
    seed: int, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = ImageHistory.note
    aborted = []

    def noting(self: ImageHistory, broker: str, image: MetadataImage) -> None:
        before = self.newest
        note(self, broker, image)
        is_next = image.end == before.end + 1
        if (
            is_next
            and before.pending is not None
            and image == before._replace(end=image.end, pending=None)
        ):
            aborted.append(image.end)

    monkeypatch.setattr(ImageHistory, "note", noting)
    plan = ClusterPlan(8.0, frozenset({"plain", "topics"}), frozenset({"controller"}), store=store)
    outcome = run_world(ClusterWorld(seed, plan))
    assert outcome.violations == ()
    assert aborted, "no controller died between two entries"


def test_brokers_that_keep_more_topics_than_a_record_names_return_after_a_power_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their registrations are written as states of partitions."""
    divided = []
    states_after, with_states = metadata_plan._states_after, metadata_plan._with_states

    def with_short_lines(
        image: MetadataImage, records: tuple[Record, ...], line_max: int
    ) -> tuple[Record, ...]:
        return with_states(image, records, 60)

    def noting(image: MetadataImage, lost: BrokerLost) -> Iterator[PartitionRecord]:
        divided.append(lost.broker_id)
        return states_after(image, lost)

    monkeypatch.setattr(metadata_plan, "_with_states", with_short_lines)
    monkeypatch.setattr(metadata_plan, "_states_after", noting)
    plan = ClusterPlan(8.0, frozenset({"idempotent"}), frozenset({"power of all"}))
    plan.settings["log.durability"] = "fsync"
    assert run_world(ClusterWorld(1, plan)).violations == ()
    assert set(divided) == {1, 2, 3}
