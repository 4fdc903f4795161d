"""Asks one broker the bad requests, and keeps its outcomes by case and version."""

from __future__ import annotations

from collections.abc import Iterable

from client_apis import CLIENT_APIS
from conformance.case import Case, World, outcome
from lakelog.protocol.connections import ApiVersionsRequest
from wire_client import TIMEOUT_S, WireClient

CLOSED, SILENT = "closed", "no answer"
_SILENCE_S = 5.0
"""After which a broker that is expected not to answer is taken at its word."""

Ranges = dict[str, tuple[int, int]]
Outcomes = dict[tuple[str, int], str]


def advertised(bootstrap: str) -> Ranges:
    """The ranges of the APIs that are in our registry too, by name."""
    with WireClient(bootstrap) as client:
        response = client.call(ApiVersionsRequest(), 0)
    found = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    return {api.name: found[key] for key, api in CLIENT_APIS.items() if key in found}


def common(ours: Ranges, theirs: Ranges) -> Ranges:
    """Versions that both advertise and that can be encoded."""
    implemented = {api.name: (api.min_version, api.max_version) for api in CLIENT_APIS.values()}
    return {
        name: (
            max(implemented[name][0], ours[name][0], theirs[name][0]),
            min(implemented[name][1], ours[name][1], theirs[name][1]),
        )
        for name in ours.keys() & theirs.keys()
    }


def versions_of(case: Case, ranges: Ranges, *, every: bool) -> list[int]:
    """Those it makes sense in; without `every`, the oldest and the newest of them."""
    low, high = ranges[case.api]
    found = list(range(max(low, case.versions[0]), min(high, case.versions[1]) + 1))
    return found if every else sorted({*found[:1], *found[-1:]})


def outcomes(
    bootstrap: str, world: World, cases: Iterable[Case], ranges: Ranges, *, every: bool
) -> Outcomes:
    found: Outcomes = {}
    client = WireClient(bootstrap)
    for case in cases:
        for version in versions_of(case, ranges, every=every):
            client.socket.settimeout(_SILENCE_S if _may_be_silent(case) else TIMEOUT_S)
            answer = _ask(client, case, world, version)
            found[case.id, version] = answer
            if answer in (CLOSED, SILENT):
                client.close()
                client = WireClient(bootstrap)
    client.close()
    return found


def _may_be_silent(case: Case) -> bool:
    return case.differs is not None and SILENT in (case.differs.ours, case.differs.kafka)


def _ask(client: WireClient, case: Case, world: World, version: int) -> str:
    try:
        return outcome(client.call(case.build(world), version))
    except (EOFError, BrokenPipeError):
        return CLOSED
    except TimeoutError:
        return SILENT
