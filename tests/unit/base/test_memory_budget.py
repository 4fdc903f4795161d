from __future__ import annotations

import pytest

from lakelog.base.memory_budget import Account, Share, text_bytes


def test_accounts_share_the_budget() -> None:
    budget = Share(800)
    one, other = Account[str](budget), Account[str](budget)
    for number in range(7):
        one.add(f"a{number}", 100)
    other.add("b", 60)
    assert (budget.used, one.of("a0"), other.of("b"), other.of("a0")) == (760, 100, 60, 0)
    assert other.may_grow("b", 40)
    assert not other.may_grow("b", 41), "the share of one name is an eighth"
    assert not other.may_grow("c", 41), "the budget is used up"
    assert other.may_grow("c", 0)


def test_bytes_that_are_being_removed_count_as_free() -> None:
    budget = Share(100)
    budget.used = 100
    assert not budget.has(1)
    budget.leaving = 30
    assert budget.has(30)
    assert not budget.has(31)


def test_a_closed_account_releases_everything_and_ignores_the_rest() -> None:
    budget = Share(100)
    account = Account[str](budget)
    account.add("a", 10)
    account.add("a", -4)
    account.close()
    assert (budget.used, account.of("a")) == (0, 0)
    account.add("a", 5)
    assert budget.used == 0


def test_nothing_is_released_that_was_not_taken() -> None:
    account = Account[str](Share(100))
    account.add("a", 3)
    with pytest.raises(AssertionError, match="released 1 bytes more"):
        account.add("a", -4)


@pytest.mark.parametrize("text", ["", "abc", "é" * 100, "漢字", "🙂" * 5])
def test_the_bound_of_a_string_holds(text: str) -> None:
    assert text_bytes(text) >= text.__sizeof__() - 16
    assert text_bytes(None) == 0
