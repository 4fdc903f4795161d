"""Repeated `kill -9` under clients of all kinds: every promise to them is kept.

One data folder lives through all rounds (`--endurance-rounds`, `--endurance-seed`), and so do the
clients, real programs on confluent-kafka that find the broker again by themselves; some of them die
too. In each round the broker is killed at a random moment: under load, while `__consumer_offsets`
is compacted, as a segment is rolled, or while it starts. Segments are small, so that all of this
happens often.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker_process import BrokerProcess
from endurance.client_process import LEDGER, NUMBERS, PARTITIONS, READERS, TRANSFORMED, TRANSFORMERS
from endurance.crew import Crew
from endurance.history import History, Journals
from endurance.judge import (
    judge_acknowledged,
    judge_ends,
    judge_offsets,
    judge_reading,
    judge_transactions,
    judge_transformed,
    judge_views,
)
from endurance.reading import (
    COMMITTED,
    UNCOMMITTED,
    commit_start,
    committed_of,
    ends_of,
    read_topic,
)
from endurance.rounds import kill_at, moments
from file_oracle import check_data_folder, dump
from kafka_jars import require
from waiting import eventually

SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
}
SMALL_SEGMENTS = {
    "internal.segment.bytes": "32768",
    "index.interval.bytes": "512",
}
STEADY = ("numbers.0", "numbers.1", "numbers.2", "ledger.0", "ledger.1", "readers.0")
MORTAL = ("readers.1", "transform.0", "transform.1", "ledger.2")
"""One of them is killed in each round, and started again."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        names = (NUMBERS, LEDGER, TRANSFORMED)
        topics = [NewTopic(name, PARTITIONS, 1, config=SMALL_SEGMENTS) for name in names]
        for created in admin.create_topics(topics).values():
            created.result(60)
        for group in (READERS, TRANSFORMERS):
            commit_start(broker.bootstrap, group, NUMBERS, PARTITIONS)
        yield broker


@pytest.fixture
def crew(broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Crew]:
    seed: int = request.config.getoption("--endurance-seed")
    crew = Crew(broker.bootstrap, tmp_path, seed)
    yield crew
    crew.end()


class _Progress:
    """What clients have achieved; each kind is to achieve more between two kills."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals

    def counts(self) -> tuple[int, ...]:
        history = self._journals.look()
        outcomes = list(history.transactions.values())
        offsets = history.committed.items()
        return (
            len(history.acknowledged),
            outcomes.count("committed"),
            *(
                sum(offset for (name, _), offset in offsets if name == group)
                for group in (READERS, TRANSFORMERS)
            ),
        )

    def wait(self, crew: Crew) -> None:
        before = self.counts()

        def is_made() -> bool:
            crew.check()
            return all(a < b for a, b in zip(before, self.counts(), strict=True))

        try:
            eventually(is_made, 180)
        except AssertionError as failure:
            text = f"{before} became {self.counts()} only; {crew.printed()}"
            raise AssertionError(text) from failure


@pytest.mark.java
def test_nothing_that_was_promised_is_lost(
    broker: BrokerProcess, crew: Crew, request: pytest.FixtureRequest
) -> None:
    require("java")
    rounds: int = request.config.getoption("--endurance-rounds")
    seed: int = request.config.getoption("--endurance-seed")
    rng, journals = random.Random(seed), Journals(crew.journals)
    progress = _Progress(journals)
    for name in (*STEADY, *MORTAL):
        crew.start(name)
    progress.wait(crew)
    for number, moment in enumerate(moments(rounds, rng), 1):
        mortal = rng.choice(MORTAL)
        crew.kill(mortal)
        kill_at(broker, moment, rng)
        begun = time.monotonic()
        broker.restart()
        recovery_s = time.monotonic() - begun
        crew.start(mortal)
        _check_round(broker, journals)
        progress.wait(crew)
        records, transactions, read, made = progress.counts()
        print(
            f"\nround {number}: killed {moment}, up again after {recovery_s:.2f} s; so far "
            f"{records} records, {transactions} transactions acknowledged, "
            f"{read} read, {made} transformed",
            end="",
            flush=True,
        )
    _finish(broker, crew, journals)
    history = journals.look()
    complaints = _judge_all(broker, history)
    assert not complaints, "\n".join(complaints[:50])
    broker.stop()
    check_data_folder(broker.data, compacted=True)
    _check_transaction_log(broker.data, history)


def _check_round(broker: BrokerProcess, journals: Journals) -> None:
    history = journals.look()
    promised, acknowledged = dict(history.committed), list(history.acknowledged)
    found = {
        **committed_of(broker.bootstrap, READERS, NUMBERS, PARTITIONS),
        **committed_of(broker.bootstrap, TRANSFORMERS, NUMBERS, PARTITIONS),
    }
    complaints = judge_offsets(promised, found) + history.violations
    complaints += judge_ends(acknowledged, ends_of(broker.bootstrap, NUMBERS, PARTITIONS))
    assert not complaints, "\n".join(complaints)


def _finish(broker: BrokerProcess, crew: Crew, journals: Journals) -> None:
    """Stop the producers, and let all consumers reach the end of their partitions."""
    crew.stop(["numbers"])
    crew.stop(["ledger"])
    ends = ends_of(broker.bootstrap, NUMBERS, PARTITIONS)
    wanted = {
        (group, index): end for group in (READERS, TRANSFORMERS) for index, end in ends.items()
    }
    eventually(lambda: journals.look().committed == wanted, 180, "everything was read")
    crew.stop(["transform"])
    crew.stop(["readers"])


def _judge_all(broker: BrokerProcess, history: History) -> list[str]:
    found = {
        (topic, isolation): read_topic(broker.bootstrap, topic, PARTITIONS, isolation)
        for topic in (NUMBERS, LEDGER, TRANSFORMED)
        for isolation in (COMMITTED, UNCOMMITTED)
    }
    numbers, ledger = found[NUMBERS, COMMITTED], found[LEDGER, COMMITTED]
    complaints = [*history.violations]
    for isolation in (COMMITTED, UNCOMMITTED):
        complaints += judge_acknowledged(history.acknowledged, found[NUMBERS, isolation])
    for topic in (LEDGER, TRANSFORMED):
        complaints += judge_views(found[topic, COMMITTED], found[topic, UNCOMMITTED])
        assert len(found[topic, COMMITTED]) < len(found[topic, UNCOMMITTED]), "nothing was aborted"
    outcomes = {n: o for n, o in history.transactions.items() if n.startswith(LEDGER)}
    complaints += judge_transactions(outcomes, ledger)
    complaints += judge_transformed(numbers, found[TRANSFORMED, COMMITTED])
    complaints += judge_reading(history, numbers)
    print(
        f"\n{len(numbers)} numbers, {len(outcomes)} transactions, {len(complaints)} violations",
        end="",
    )
    return complaints


_OVER = "045"
"""Complete, by a commit or an abort, or empty: its client was stopped right after its start."""


def _check_transaction_log(data: Path, history: History) -> None:
    """Apache Kafka reads the newest state of each id in our records."""
    logs = sorted(data.glob("__transaction_state-*/*.log"))
    printed, complaints = dump(logs, "--transaction-log-decoder")
    assert not complaints
    for producer in {name.rpartition("/")[0] for name in history.transactions}:
        states = re.findall(rf'"transactionalId":"{producer}".*?"transactionStatus":(\d)', printed)
        assert states, printed[-2000:]
        assert states[-1] in _OVER
