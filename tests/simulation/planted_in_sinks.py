"""Bugs in the commit sets of sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakelog.coordinator.transaction.sink import sinks
from lakelog.coordinator.transaction.sink.commit_sets import batch_committed
from lakelog.coordinator.transaction.sink.sinks import Sinks
from lakelog.coordinator.transaction.state import Sink, Transaction, TransactionState
from simulation.planted_bug import bug
from simulator.checkers.laws import Law


@bug("a commit leaves the next batch as it was", Law.BATCH_ONCE, "sinks", faults=("client crash",))
def _next_batch_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(parent: Transaction, *arguments: Any) -> Transaction | None:
        step = batch_committed(parent, *arguments)
        if step is None:
            return None
        assert isinstance(step.part, Sink)
        assert isinstance(parent.part, Sink)
        return replace(step, part=replace(step.part, next_batch=parent.part.next_batch))

    monkeypatch.setattr(sinks, "batch_committed", kept)


@bug("losers are committed with the winners", Law.COMMITTED_ONLY, "sinks")
def _losers_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    end_children = Sinks._end_children

    def end(self: Sinks, now: Any, sink_id: str, steps: Any, *rest: Any, **named: Any) -> Any:
        for name, current in self.children(sink_id):
            if name not in steps and current.state is TransactionState.ONGOING:
                epoch = current.producer_epoch + 1
                state = TransactionState.PREPARE_COMMIT
                steps[name] = replace(current, state=state, producer_epoch=epoch)
        return end_children(self, now, sink_id, steps, *rest, **named)

    monkeypatch.setattr(Sinks, "_end_children", end)


@bug("a winner is left out of the commit", Law.WHOLE, "sinks")
def _winner_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    end_children = Sinks._end_children

    def end(self: Sinks, now: Any, sink_id: str, steps: Any, *rest: Any, **named: Any) -> Any:
        winners = [name for name in steps if name != sink_id]
        if len(winners) > 1:
            del steps[winners[-1]]
        return end_children(self, now, sink_id, steps, *rest, **named)

    monkeypatch.setattr(Sinks, "_end_children", end)
