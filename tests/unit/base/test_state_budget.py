from __future__ import annotations

import pytest

from lakelog.base.state_budget import StateAccount, StateBudget, text_bytes


def test_accounts_share_the_budget() -> None:
    budget = StateBudget(800)
    one, other = StateAccount(budget), StateAccount(budget)
    for number in range(7):
        one.note(f"a{number}", 100)
    other.note("b", 60)
    assert (budget.total, one.of("a0"), other.of("b"), other.of("a0")) == (760, 100, 60, 0)
    assert other.may_grow("b", 40)
    assert not other.may_grow("b", 41), "the share of one name is an eighth"
    assert not other.may_grow("c", 41), "the budget is used up"
    assert other.may_grow("c", 0)


def test_bytes_that_are_being_removed_count_as_free() -> None:
    budget = StateBudget(100)
    budget.total = 100
    assert not budget.has(1)
    budget.leaving = 30
    assert budget.has(30)
    assert not budget.has(31)


def test_a_closed_account_releases_everything_and_ignores_the_rest() -> None:
    budget = StateBudget(100)
    account = StateAccount(budget)
    account.note("a", 10)
    account.note("a", -4)
    account.close()
    assert (budget.total, account.of("a")) == (0, 0)
    account.note("a", 5)
    assert budget.total == 0


def test_nothing_is_released_that_was_not_taken() -> None:
    account = StateAccount(StateBudget(100))
    account.note("a", 3)
    with pytest.raises(AssertionError, match="released 1 bytes more"):
        account.note("a", -4)


@pytest.mark.parametrize("text", ["", "abc", "é" * 100, "漢字", "🙂" * 5])
def test_the_bound_of_a_string_holds(text: str) -> None:
    assert text_bytes(text) >= text.__sizeof__() - 16
    assert text_bytes(None) == 0
