"""Feature levels on the command line: their table, and requests to change them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lakelog.cli.failures import CliError
from lakelog.cli.render import Listing

if TYPE_CHECKING:
    from lakelog.client.admin.features import Feature

_COLUMNS = ("feature", "level", "lowest", "highest", "note")


def feature_listing(features: Iterable[Feature]) -> Listing:
    """Return one row per feature; lowest and highest are levels that all brokers support."""
    rows = [
        {
            "feature": each.name,
            "level": each.level,
            "lowest": each.lowest if each.supported else None,
            "highest": each.highest if each.supported else None,
            "note": _note(each),
        }
        for each in features
    ]
    return Listing(rows, _COLUMNS)


def _note(feature: Feature) -> str:
    if feature.lacking:
        brokers = ", ".join(map(str, feature.lacking))
        return f"unknown to broker {brokers}"
    highs = {node_id: high for node_id, (_, high) in feature.supported.items()}
    older = [str(node_id) for node_id, high in highs.items() if high < max(highs.values())]
    if older:
        return f"broker {', '.join(older)} has an older version"
    return "can be upgraded" if feature.level < feature.highest else ""


def parse_levels(
    texts: Sequence[str] | None, features: Mapping[str, Feature], *, upgrade: bool
) -> dict[str, int]:
    """Return the wanted levels by feature.

    `FEATURE` alone, in an upgrade, is the highest level that all brokers support; `all` upgrades
    every feature. Raises `CliError`.
    """
    wanted: dict[str, int] = {}
    for text in texts or ():
        name, separator, level = text.partition("=")
        if upgrade and name == "all" and not separator:
            news = {each.name: each.highest for each in features.values() if each.supported}
            wanted |= {each: high for each, high in news.items() if high > features[each].level}
            continue
        if name not in features:
            known = ", ".join(sorted(features))
            raise CliError("LL0902", f"{name!r} is no feature of this cluster", f"one of {known}")
        if upgrade and not separator:
            wanted[name] = features[name].highest
        else:
            wanted[name] = _level(text, level)
    return wanted


def _level(text: str, level: str) -> int:
    if not level.isdecimal() or int(level) > 32_767:
        raise CliError("LL0902", f"{text!r} is not FEATURE=LEVEL", "a level is a number from 0")
    return int(level)


def changes(features: Mapping[str, Feature], wanted: Mapping[str, int]) -> list[str]:
    """Return a text for each feature whose level would change."""
    return [
        f"{name} from {features[name].level} to {level}"
        for name, level in wanted.items()
        if features[name].level != level
    ]
