"""Generates docs/api-support.md from what handlers declare, and from the APIs that are absent.

Run `python -m lakelog.server.api_page`.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from lakelog.server.routes import served_apis
from lakelog.server.served_api import ServedApi


class AbsentApi(NamedTuple):
    """An API that the broker does not have, with the reason: a row of the page."""

    key: int
    name: str
    reason: str


_SECURITY = "authentication and authorization are not supported"
_QUORUM = "the metadata log is embedded; there is no Raft quorum"
_SHARE = "share groups are not supported"
_STREAMS = "streams groups are not supported"
_QUOTAS = "quotas are not supported"
_TELEMETRY = "client telemetry is not supported"

ABSENT_APIS = (
    AbsentApi(29, "DescribeAcls", _SECURITY),
    AbsentApi(30, "CreateAcls", _SECURITY),
    AbsentApi(31, "DeleteAcls", _SECURITY),
    AbsentApi(34, "AlterReplicaLogDirs", "a broker has one data folder"),
    AbsentApi(38, "CreateDelegationToken", _SECURITY),
    AbsentApi(39, "RenewDelegationToken", _SECURITY),
    AbsentApi(40, "ExpireDelegationToken", _SECURITY),
    AbsentApi(41, "DescribeDelegationToken", _SECURITY),
    AbsentApi(48, "DescribeClientQuotas", _QUOTAS),
    AbsentApi(49, "AlterClientQuotas", _QUOTAS),
    AbsentApi(50, "DescribeUserScramCredentials", _SECURITY),
    AbsentApi(51, "AlterUserScramCredentials", _SECURITY),
    AbsentApi(52, "Vote", _QUORUM),
    AbsentApi(53, "BeginQuorumEpoch", _QUORUM),
    AbsentApi(54, "EndQuorumEpoch", _QUORUM),
    AbsentApi(55, "DescribeQuorum", _QUORUM),
    AbsentApi(58, "Envelope", _QUORUM),
    AbsentApi(59, "FetchSnapshot", _QUORUM),
    AbsentApi(70, "ControllerRegistration", _QUORUM),
    AbsentApi(71, "GetTelemetrySubscriptions", _TELEMETRY),
    AbsentApi(72, "PushTelemetry", _TELEMETRY),
    AbsentApi(73, "AssignReplicasToDirs", _QUORUM),
    AbsentApi(76, "ShareGroupHeartbeat", _SHARE),
    AbsentApi(77, "ShareGroupDescribe", _SHARE),
    AbsentApi(78, "ShareFetch", _SHARE),
    AbsentApi(79, "ShareAcknowledge", _SHARE),
    AbsentApi(80, "AddRaftVoter", _QUORUM),
    AbsentApi(81, "RemoveRaftVoter", _QUORUM),
    AbsentApi(82, "UpdateRaftVoter", _QUORUM),
    AbsentApi(83, "InitializeShareGroupState", _SHARE),
    AbsentApi(84, "ReadShareGroupState", _SHARE),
    AbsentApi(85, "WriteShareGroupState", _SHARE),
    AbsentApi(86, "DeleteShareGroupState", _SHARE),
    AbsentApi(87, "ReadShareGroupStateSummary", _SHARE),
    AbsentApi(88, "StreamsGroupHeartbeat", _STREAMS),
    AbsentApi(89, "StreamsGroupDescribe", _STREAMS),
    AbsentApi(90, "DescribeShareGroupOffsets", _SHARE),
    AbsentApi(91, "AlterShareGroupOffsets", _SHARE),
    AbsentApi(92, "DeleteShareGroupOffsets", _SHARE),
    AbsentApi(93, "StreamsGroupTopologyDescriptionUpdate", _STREAMS),
    AbsentApi(94, "UnregisterController", _QUORUM),
)
"""By key. These and the served ones are all keys except 4 to 7, which have no versions."""


_INTRODUCTION = """\
# APIs of the Kafka protocol

The APIs that the broker supports, by key. The advertised version ranges are the complete stable
ranges of Apache Kafka 4.4. Behaviour is compared with Apache Kafka 4.3.1, the newest version that
can be run: `make conformance` sends the same invalid requests to both.

This page is generated: `python -m lakelog.server.api_page > docs/api-support.md`.
"""
_SUPPORTED_HEAD = "| key | API | versions | supported | not supported |"


def api_page() -> str:
    """Return the page in Markdown."""
    served = [_row(served_api) for served_api in served_apis()]
    absent = [f"| {key} | {name} | {reason} |" for key, name, reason in ABSENT_APIS]
    parts = [
        _INTRODUCTION,
        "## Supported\n",
        "\n".join([_SUPPORTED_HEAD, "|---|---|---|---|---|", *served]),
        "\n## Not supported\n",
        "A request of one of these APIs closes the connection, because the broker does not "
        "advertise it. Kafka 4.0 removed the keys 4 to 7.\n",
        "\n".join(["| key | API | reason |", "|---|---|---|", *absent]),
    ]
    return "\n".join(parts) + "\n"


def _row(served: ServedApi[Any]) -> str:
    api = served.api
    versions = f"{served.served_versions.lowest}–{served.served_versions.highest}"
    return f"| {api.key} | {api.name} | {versions} | {served.done} | {served.missing} |"


if __name__ == "__main__":
    sys.stdout.write(api_page())
