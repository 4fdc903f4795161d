"""`lakelog` with an engine without Java for its archive: `plain_command.py table sync ...`."""

from __future__ import annotations

from lakelog.cli.main import main
from spark.plain_engine import plain_engine

if __name__ == "__main__":
    with plain_engine():
        main()
