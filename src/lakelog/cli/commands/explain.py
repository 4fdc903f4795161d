"""`lakelog explain`: describes error codes, without a broker."""

from __future__ import annotations

import textwrap

from lakelog.cli.catalog import CATALOG, Entry
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.options import Output, Verbosity
from lakelog.cli.render import Listing, show

_WIDTH = 80

app = Noun("explain")


@app.command(
    code=Argument(
        "The code in brackets after `error`; case does not matter, and the prefix LL is optional."
    )
)
def explain(code: str | None = None, *, verbosity: Verbosity, output: Output) -> None:
    """Explain an error code such as LL0102, or list all of them."""
    entries = list(CATALOG.values()) if code is None else [find(code)]
    if output.format == "table" and code is not None:
        show(explanation(entries[0]))
    else:
        show(listing(entries), output.format)


def find(code: str) -> Entry:
    """Return the entry of a code as the user typed it. Raises `CliError`."""
    full_code = f"LL{code.upper().removeprefix('LL').zfill(4)}"
    if full_code not in CATALOG:
        hint = suggestion(full_code, CATALOG) or "run lakelog explain to list the codes"
        raise CliError("LL0902", f"unknown error code '{code}'", hint)
    return CATALOG[full_code]


def explanation(entry: Entry) -> str:
    """Return the page of one error."""
    names = ", ".join(code.name for code in entry.kafka)
    lines = [f"{entry.code}: {entry.title}", "", *textwrap.wrap(entry.text, _WIDTH), ""]
    lines.append(f"Exit status {entry.exit.value} ({entry.exit.name.lower()}).")
    if names:
        lines += textwrap.wrap(f"Kafka's names: {names}.", _WIDTH)
    return "\n".join(lines)


def listing(entries: list[Entry]) -> Listing:
    rows = [
        {
            "code": entry.code,
            "title": entry.title,
            "exit_status": entry.exit.value,
            "kafka": [code.name for code in entry.kafka],
            "text": entry.text,
        }
        for entry in entries
    ]
    return Listing(rows, ("code", "title", "exit_status"))
