"""The order in which assignors serve the members of a group."""

from __future__ import annotations

from lakelog.assignors.member import Member, in_order

NO_TOPICS = frozenset[str]()


def _order(*members: tuple[str, str | None]) -> list[str]:
    return [m.member_id for m in in_order([Member(name, NO_TOPICS, own) for name, own in members])]


def test_static_members_come_first_by_their_static_ids() -> None:
    """KIP-345: their member ids change with each restart, their ids do not."""
    assert _order(("a", None), ("z", "first"), ("b", "second")) == ["z", "b", "a"]


def test_dynamic_members_come_in_the_order_of_their_ids_as_java_sorts_them() -> None:
    assert _order(("b", None), ("a-10", None), ("a-9", None), ("B", None)) == [
        "B", "a-10", "a-9", "b",
    ]  # fmt: skip


def test_the_order_does_not_depend_on_the_order_of_joining() -> None:
    members = [("c", None), ("a", "x"), ("b", None)]
    assert _order(*members) == _order(*reversed(members))
