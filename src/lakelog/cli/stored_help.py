"""Finds the page of `lakelog COMMAND --help`; `help_writer.py` writes the pages."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("help_pages")

_FLAGS = ("--help", "-h")


def page_name(noun: str, command: str = "") -> str:
    """Return the name of a page: `topic`, `topic-create`."""
    return f"{noun}-{command}" if command else noun


def wanted_page(noun: str, tokens: list[str]) -> str | None:
    """Return the page that a command line requests, or `None` if it requests none.

    A noun with commands has a page that is shown if no command follows.
    """
    end = tokens.index("--") if "--" in tokens else len(tokens)
    if not tokens and any(FOLDER.glob(f"{noun}-*.txt")):
        return _read(page_name(noun))
    if not any(flag in tokens[:end] for flag in _FLAGS):
        return None
    names = [page_name(noun, token) for token in tokens[:end] if token.replace("-", "").isalpha()]
    found = [name for name in names if (FOLDER / f"{name}.txt").is_file()]
    return _read(found[0] if found else page_name(noun))


def _read(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
