"""Assignments compared with Apache Kafka's own assignors."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import kafka_jars
from lakelog.assignors import ASSIGNORS, Member

pytestmark = pytest.mark.java

ORACLE = Path(__file__).parent.parent / "java" / "AssignorsOracle.java"
CASES = 300
TOPICS = "abcd"

Case = tuple[str, dict[str, int], list[Member]]


def make_case(choice: random.Random) -> Case:
    counts = {topic: choice.randint(1, 7) for topic in TOPICS[: choice.randint(1, 4)]}
    members = [
        Member(
            f"m{number}",
            frozenset(topic for topic in TOPICS if choice.random() < 0.7),
            f"s{choice.randint(0, 99)}x{number}" if choice.random() < 0.3 else None,
        )
        for number in choice.sample(range(100), choice.randint(1, 6))
    ]
    return choice.choice(sorted(ASSIGNORS)), counts, members


def question(case: Case) -> str:
    name, counts, members = case
    topics = ",".join(f"{topic}={count}" for topic, count in counts.items())
    rows = [
        f"{member.member_id}{'/' + member.instance_id if member.instance_id else ''}"
        f"={'+'.join(sorted(member.topics))}"
        for member in members
    ]
    return f"{name} {topics} {','.join(rows)}"


def answer(case: Case) -> str:
    name, counts, members = case
    shares = ASSIGNORS[name](members, counts)
    return ",".join(
        f"{member}="
        + "+".join(sorted(f"{topic}-{p}" for topic, owned in topics.items() for p in owned))
        for member, topics in sorted(shares.items())
    )


def test_assignments_equal_the_assignments_of_java() -> None:
    choice = random.Random(20)
    cases = [make_case(choice) for _ in range(CASES)]
    command = kafka_jars.java_command("formats", ORACLE)
    text = "\n".join(map(question, cases))
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == CASES
    for case, theirs in zip(cases, answers, strict=True):
        assert answer(case) == theirs, question(case)
