"""Configuration keys in rows of text, as `keys/` declares them.

A row is: name, type, default (`-` is null, `""` is empty), bounds (`1..`, `1..9`, `1..9|-1` or
`in:a|b`), the scope of a change at run time, `internal`, and the broker keys that supply the
default, such as `=log.roll.hours`; all after the default may be absent. A broker key in minutes or
hours supplies a default in milliseconds. The description follows in indented lines.

    log.retention.check.interval.ms long 300000 1..
        Interval, in milliseconds, between checks for segments to delete.

A line with `#` states why the keys below it have no effect, `#!` the same for keys that are
internal to Kafka, and `#-` why only the default of the keys below it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.base.config.key import (
    ConfigKey,
    ConfigType,
    Effect,
    Synonym,
    UpdateMode,
    Validator,
    at_least,
    between,
    between_or,
    list_of,
    one_of,
)

_EFFECTS = {"#": Effect.NONE, "#!": Effect.NONE, "#-": Effect.REFUSED}
_UNITS_MS = {"minutes": 60_000, "hours": 3_600_000}
_MODES = {mode.value: mode for mode in UpdateMode}
NO_BOUNDS: Mapping[str, Validator] = {}


def parse_keys(text: str, bounds: Mapping[str, Validator] = NO_BOUNDS) -> tuple[ConfigKey, ...]:
    """Return the keys in the rows of `text`.

    bounds: the checks of keys, by name, for which rows have no words.
    """
    keys: list[ConfigKey] = []
    mark, reason = "", ""
    for line in text.strip("\n").split("\n"):
        first, _, words = line.partition(" ")
        if first in _EFFECTS:
            mark, reason = first, words
        elif first:
            key = _key(line, bounds)
            effect = _EFFECTS.get(mark, Effect.HONOURED)
            internal = key.internal or mark == "#!"
            keys.append(key._replace(effect=effect, reason=reason, internal=internal))
        else:
            keys[-1] = keys[-1]._replace(doc=f"{keys[-1].doc} {line.strip()}".lstrip())
    assert bounds.keys() <= {key.name for key in keys}
    return tuple(keys)


def _key(row: str, bounds: Mapping[str, Validator]) -> ConfigKey:
    name, type_name, default, *rest = row.split()
    config_type = ConfigType[type_name.upper()]
    bound, mode, internal = bounds.get(name), UpdateMode.READ_ONLY, False
    synonyms: list[Synonym] = []
    for word in rest:
        if word in _MODES:
            mode = _MODES[word]
        elif word == "internal":
            internal = True
        elif word.startswith("="):
            unit = word.rpartition(".")[2]
            synonyms.append(Synonym(word[1:], _UNITS_MS.get(unit, 1)))
        else:
            bound = _bound(word, config_type)
    return ConfigKey(
        name,
        config_type,
        None if default == "-" else default.strip('"'),
        "",
        bound,
        mode,
        synonyms=tuple(synonyms),
        internal=internal,
    )


def _bound(text: str, config_type: ConfigType) -> Validator:
    if text.startswith("in:"):
        choices = text.removeprefix("in:").split("|")
        return list_of(*choices) if config_type is ConfigType.LIST else one_of(*choices)
    span, _, other = text.partition("|")
    low, _, high = span.partition("..")
    if other:
        return between_or(int(low), int(high), int(other))
    return between(_number(low), _number(high)) if high else at_least(int(low))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
