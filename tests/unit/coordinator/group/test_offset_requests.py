from __future__ import annotations

import asyncio

from coordinator_members import commit_codes, committed, form, heartbeat
from group_setup import Setup, in_virtual_time

ORDERS = ("orders", 0)


@in_virtual_time()
async def test_a_commit_renews_the_session_of_its_member(setup: Setup) -> None:
    (member,) = await form(setup, 1, session_timeout_ms=10_000)
    for offset in range(3):
        await asyncio.sleep(6)
        assert await commit_codes(setup, {ORDERS: offset}, member) == [0]
    assert await committed(setup) == {ORDERS: 2}
    assert await heartbeat(setup, member) == 0
