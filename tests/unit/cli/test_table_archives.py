from __future__ import annotations

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakelog.cli.failures import CliError
from lakelog.cli.table_archives import named_errors, repeatable
from lakelog.tables.archive.history import ProgressMismatchError
from lakelog.tables.iceberg.exchange import UnknownOutcomeError
from lakelog.tables.latest.progress import LatestTableError
from lakelog.tables.topic.errors import ArchiveUnreadableError, TopicMissingError


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (TopicMissingError("x"), "LL0102"),
        (ProgressMismatchError("x"), "LL0803"),
        (LatestTableError("x"), "LL0803"),
        (ArchiveUnreadableError("x"), "LL0805"),
        (UnknownOutcomeError("x"), "LL0805"),
        (CommitFailedException("x\ny"), "LL0805"),
        (ValueError("x"), "LL0902"),
    ],
)
def test_errors_of_tables_have_a_code(raised: Exception, code: str) -> None:
    with pytest.raises(CliError) as failure, named_errors():
        raise raised
    assert (failure.value.code, failure.value.message) == (code, "x")


def test_an_error_of_a_repeatable_command_says_so() -> None:
    with pytest.raises(CliError) as failure, repeatable("lakelog table drop orders"):
        raise PermissionError("not in this folder")
    assert failure.value.code == "LL0805"
    assert failure.value.hint == "run `lakelog table drop orders` again to complete it"
