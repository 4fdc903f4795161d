"""Groups settle after the last fault: each partition has one owner."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.clients.groups.member import GroupClient
from simulator.engine.loop import SimulatedLoop
from waiting import EventTimeoutError, until

_PATIENCE_S = 60.0
"""More than the sessions, rebalance timeouts and pauses of all members in sequence, in seconds."""
_POLL_S = 0.2


async def settle(
    members: Sequence[GroupClient],
    dead_members: Sequence[GroupClient],
    loop: SimulatedLoop,
    findings: Findings,
) -> None:
    """Wait until each partition of a group has one owner; record groups where that never happens.

    `dead_members` crashed and were not replaced: the others have to take over their partitions.
    """
    deadline = loop.time() + _PATIENCE_S
    for group in sorted({member.group for member in members}):
        inside = [member for member in members if member.group == group]
        with suppress(EventTimeoutError):
            await until(partial(_is_settled, inside), deadline - loop.time(), every_s=_POLL_S)
        owned = {member.name: sorted(member.owned) for member in inside}
        dead = [member.name for member in dead_members if member.group == group]
        findings.expect(
            Law.EXPIRES if dead else Law.OWNED,
            _is_settled(inside),
            f"{group} does not settle: {owned}; dead are {dead}",
        )


def _is_settled(members: list[GroupClient]) -> bool:
    owned = sorted(partition for member in members for partition in member.owned)
    return owned == sorted(members[0].topic_partitions)
