"""Reads of a shard: the protocol of a group decides its description and its offsets."""

from __future__ import annotations

import pytest

from consumer_members import Consumer
from coordinator_members import GROUP, commit_codes, form, new_id
from group_setup import Setup, in_virtual_time
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.listing import GroupFilter
from lakelog.coordinator.group.queries import Queries
from lakelog.protocol.offset_fetch import OffsetFetchRequestGroup

ORDERS = ("orders", 0)


def _queries(setup: Setup) -> Queries:
    return setup.coordinator._host.shard(0).queries


@in_virtual_time()
async def test_each_description_rejects_groups_of_the_other_protocol(setup: Setup) -> None:
    await form(setup, 1, group="classic")
    await Consumer(setup, "m", group="modern").beat()
    queries = _queries(setup)
    refused = queries.describe("modern", 6)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group modern is not a classic group."
    other = queries.describe_consumer("classic")
    assert other.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert other.error_message == "Group classic is not a consumer group."


@in_virtual_time()
async def test_a_group_that_has_only_offsets_is_a_classic_one(setup: Setup) -> None:
    await commit_codes(setup, {ORDERS: 7}, group="offsets")
    queries = _queries(setup)
    assert queries.describe("offsets", 6).group_state == "Empty"
    assert queries.describe_consumer("offsets").error_message == (
        "Group offsets is not a consumer group."
    )


@in_virtual_time()
async def test_a_group_with_only_pending_member_ids_is_unknown_everywhere(setup: Setup) -> None:
    await new_id(setup, group="asked")
    queries = _queries(setup)
    assert queries.describe("asked", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert queries.describe_consumer("asked").error_message == "Group asked not found."
    assert list(queries.list_groups(GroupFilter((), ()))) == []
    assert list(queries.progress()) == []


@in_virtual_time()
async def test_a_group_with_members_and_offsets_is_listed_once(setup: Setup) -> None:
    (member,) = await form(setup, 1, group="classic")
    await commit_codes(setup, {ORDERS: 7}, member, group="classic")
    await commit_codes(setup, {ORDERS: 7}, group="modern")
    await Consumer(setup, "m", group="modern").beat()
    listed = {
        each.group_id: each.group_type for each in _queries(setup).list_groups(GroupFilter((), ()))
    }
    assert listed == {"classic": "classic", "modern": "consumer"}
    assert len(list(_queries(setup).progress())) == 2


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("m", 1, None),
        (None, -1, None),
        ("m", 77, ErrorCode.STALE_MEMBER_EPOCH),
        ("unknown", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_reads_offsets_in_its_epoch_only(
    member_id: str | None, epoch: int, code: ErrorCode | None
) -> None:
    """KIP-848; requests without a member come from administrators and older clients."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        await Consumer(setup, "m").beat()
        request = OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch)
        if code is None:
            shard = setup.coordinator._host.shard(0)
            assert shard.queries.offsets_for(request) is shard.state.offsets
            return
        with pytest.raises(KafkaError) as raised:
            _queries(setup).offsets_for(request)
        assert raised.value.code is code

    scenario()
