from __future__ import annotations

import pytest

from lakelog.base.config.key import ConfigKey, ConfigType, Effect, Synonym, UpdateMode, Validator
from lakelog.base.config.rows import parse_keys

EVEN = Validator(lambda value: isinstance(value, int) and value % 2 == 0, "an even number")
KEYS = parse_keys(
    """
a.ms long 60000 1..9|60000 cluster-wide =b.ms =b.hours
    The first line,
    and the second.
a.names list "" in:x|y
a.share double 0.5 0..0.5 internal
a.even int 2
# there is none
c.file string - per-broker
c.size int 0
    The effect that it will have.
#! it is for tests
c.test boolean false
#- it would be missed
d.kind string x in:x|y
""",
    {"a.even": EVEN},
)
BY_NAME = {key.name: key for key in KEYS}


def test_a_row_is_one_key() -> None:
    assert BY_NAME["a.ms"]._replace(validator=None) == ConfigKey(
        "a.ms",
        ConfigType.LONG,
        "60000",
        "The first line, and the second.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        synonyms=(Synonym("b.ms"), Synonym("b.hours", 3_600_000)),
    )
    assert len(KEYS) == 8


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a.ms", "1 to 9, or 60000"),
        ("a.names", "a comma-separated list of x, y"),
        ("a.share", "0 to 0.5"),
        ("a.even", "an even number"),
        ("c.size", "a whole number of 32 bits"),
        ("d.kind", "x, y"),
    ],
)
def test_a_row_or_the_name_of_the_key_gives_its_bounds(name: str, allowed: str) -> None:
    assert BY_NAME[name].allowed == allowed


def test_null_and_empty_are_different_defaults() -> None:
    assert (BY_NAME["c.file"].default, BY_NAME["a.names"].default) == (None, "")


def test_a_mark_states_the_effect_of_the_keys_below_it() -> None:
    assert [(key.name, key.effect, key.reason) for key in KEYS[3:]] == [
        ("a.even", Effect.HONOURED, ""),
        ("c.file", Effect.NONE, "there is none"),
        ("c.size", Effect.NONE, "there is none"),
        ("c.test", Effect.NONE, "it is for tests"),
        ("d.kind", Effect.REFUSED, "it would be missed"),
    ]
    assert [key.name for key in KEYS if key.internal] == ["a.share", "c.test"]


def test_bounds_of_an_unknown_key_are_an_error() -> None:
    with pytest.raises(AssertionError):
        parse_keys("a.even int 2", {"a.evn": EVEN})
