from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import cast

from lakelog.tables.archive.location import ends_text, find_locations, parse_ends
from lakelog.tables.topic.client import TopicClient


class Configs:
    """A stand-in for a client, with the keys of topics."""

    def __init__(self, **topics: dict[str, str | None]) -> None:
        self.topics = topics

    def configs(
        self, names: Iterable[str], keys: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        return {name: self.topics[name] for name in names if name in self.topics}


def test_only_enabled_topics_with_a_warehouse_have_a_place() -> None:
    client = Configs(
        a={"table.enable": "true", "table.warehouse": "/w", "table.archived.offsets": "0:3"},
        b={"table.enable": "false", "table.warehouse": "/w"},
        c={"table.enable": "true", "table.warehouse": ""},
        apache={},
    )
    found = find_locations(cast("TopicClient", client), ["a", "b", "c", "apache", "missing"])
    assert list(found) == ["a"]
    assert (found["a"].name, found["a"].published) == ("a", {0: 3})
    assert find_locations(cast("TopicClient", client), ["b"]) == {}
    disabled = find_locations(cast("TopicClient", client), ["b"], also_disabled=True)["b"]
    assert (found["a"].is_enabled, disabled.is_enabled) == (True, False)
    address = found["a"].address
    assert address.identifier == ("lakelog", "a")
    assert address.catalog["uri"] == "sqlite:////w/catalog.db"


def test_published_ends_are_text_that_is_read_back() -> None:
    assert ends_text({1: 5, 0: 12}) == "0:12,1:5"
    assert parse_ends("0:12,1:5") == {0: 12, 1: 5}
    assert parse_ends("") == {}
