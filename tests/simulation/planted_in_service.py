"""Bugs in how requests are answered, and in how a broker starts."""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.classic.group import ClassicGroup
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ConfigRecord, ResourceType
from lakelog.replica.fetch_session import FetchPlan, FetchSession
from lakelog.replica.partition import Partition
from lakelog.replica.purgatory import Purgatory
from lakelog.server.connections.send_queue import SendQueue
from lakelog.server.upkeep.maintenance import Maintenance
from lakelog.storage.folder.directory import LogDirectory
from simulation.planted_bug import bug
from simulator.checkers.laws import Law


@bug("a fetch session leaves out new records", Law.SESSION_COMPLETE, "plain")
def _left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchPlan, "includes", lambda self, *arguments: not self.incremental)


@bug("a fetch session forgets nothing", Law.SESSION_FORGETS, "idempotent")
def _nothing_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchSession, "remove", lambda *arguments: None)


@bug("a handler fails now and then", Law.NO_BUGS, "plain")
def _handler_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = FetchSession.advance

    def failing(self: FetchSession, now: float) -> None:
        advance(self, now)
        if self.epoch == 3:
            raise LookupError("planted")

    monkeypatch.setattr(FetchSession, "advance", failing)


@bug("a waiting request is not answered at its deadline", Law.PROMPT, "plain")
def _never_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Purgatory, "_tick", lambda self: None)


@bug("a waiting request is forgotten", Law.PROMPT, "plain", report="was not answered in time")
def _waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Purgatory, "_arm", lambda self: None)
    for check in ("check", "check_soon"):
        monkeypatch.setattr(Purgatory, check, lambda self, key: None)


@bug(
    "records that a thread has read are not sent",
    Law.PROMPT,
    "plain",
    faults=("cold reads",),
    report="was not answered in time",
)
def _read_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SendQueue, "_on_read", lambda self, held, size, work: held.release())


@bug("an assignment is returned without its end", Law.CLIENTS_LIVE, "classic group")
def _cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_response = ClassicGroup.sync_response

    def shorter(self: ClassicGroup, member: Any) -> Any:
        response = sync_response(self, member)
        response.assignment = bytes(response.assignment)[:-1]
        return response

    monkeypatch.setattr(ClassicGroup, "sync_response", shorter)


# Starting and stopping


def _fail_at_unclean_starts(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Every other time."""
    load_logs = LogDirectory.load_logs
    attempts: list[bool] = []

    def failing(self: LogDirectory, *arguments: Any) -> Any:
        attempts.append(self.clean)
        if not self.clean and len(attempts) % 2:
            raise error
        return load_logs(self, *arguments)

    monkeypatch.setattr(LogDirectory, "load_logs", failing)


@bug(
    "an unclean stop is too much for the next start",
    Law.STARTS,
    "plain",
    faults=("kill",),
    report="does not start",
)
def _start_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_at_unclean_starts(monkeypatch, OSError(5, "planted"))


@bug(
    "an unclean stop leads into a bug",
    Law.STARTS,
    "plain",
    faults=("kill",),
    report="failed to start",
)
def _start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_at_unclean_starts(monkeypatch, LookupError("planted"))


@bug("a stop ends half-way", Law.STARTS, "plain", faults=("stop",), report="failed to stop")
def _stop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(self: Maintenance) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(Maintenance, "stop", failing)


@bug("the first value of a setting stays", Law.CONFIG_KEPT, "administration")
def _first_setting_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_all = MetadataImage.apply_all

    def is_new(image: MetadataImage, record: Any) -> bool:
        if not isinstance(record, ConfigRecord):
            return True
        return record.key not in image.configs(ResourceType.TOPIC, record.resource_name)

    def keeping(self: MetadataImage, records: Any, end: int) -> MetadataImage:
        return apply_all(self, [record for record in records if is_new(self, record)], end)

    monkeypatch.setattr(MetadataImage, "apply_all", keeping)


@bug("a restarted leader takes no records", Law.PROGRESS, "plain", faults=("kill",))
def _takes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Partition, now_ms: int) -> None:
        if self.leader_epoch > 1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(Partition, "check_min_insync", refuse)
