from __future__ import annotations

from pathlib import Path

from lakelog.protocol.registry import APIS
from lakelog.server.api_page import ABSENT_APIS, api_page
from lakelog.server.routes import served_apis

ROOT = Path(__file__).parents[3]
WITHOUT_VERSIONS = {4, 5, 6, 7}


def _rows() -> dict[int, tuple[str, str]]:
    """Name and versions, or the reason of absence, by key, as the page has them."""
    page = (ROOT / "docs" / "api-support.md").read_text(encoding="utf-8")
    cells = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    found = [[cell.strip("| ") for cell in row] for row in cells]
    return {int(row[0]): (row[1], row[2]) for row in found if row[0].isdecimal()}


def test_the_page_is_generated() -> None:
    page = (ROOT / "docs" / "api-support.md").read_text(encoding="utf-8")
    assert page == api_page(), "run: python -m lakelog.server.api_page > docs/api-support.md"


def test_the_page_has_the_advertised_versions() -> None:
    rows = _rows()
    assert rows.keys() == set(range(95)) - WITHOUT_VERSIONS
    for key, api in APIS.items():
        assert rows[key] == (api.name, f"{api.min_version}–{api.max_version}")


def test_supported_apis_are_described_and_the_others_have_a_reason() -> None:
    assert all(each.done for each in served_apis())
    assert all(each.reason for each in ABSENT_APIS)
    assert not APIS.keys() & {each.key for each in ABSENT_APIS}
