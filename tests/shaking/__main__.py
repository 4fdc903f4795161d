"""`python -m shaking "PYTEST ARGUMENTS"...`: run tests again and again on a machine with much work.

Each round runs pytest once for each argument, beside busy processes and with random pauses of
brokers (`shaking.pauses`). All rounds run. The exit status is 1 if one of them failed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from shaking.pauses import VARIABLE

# A busy process ends by itself if this one was killed.
_BUSY = "import os\nwhile os.getppid() == {parent}:\n    sum(range(100_000))\n"


def main() -> int:
    options = _options()
    failed = []
    with busy_processes(options.busy):
        for number in range(options.rounds):
            for arguments in options.pytest:
                seed = options.seed + number
                begun = time.monotonic()
                passed = _run(shlex.split(arguments), seed)
                result = "passed" if passed else "FAILED"
                took_s = time.monotonic() - begun
                print(f"seed {seed}: {result} in {took_s:.0f} s: {arguments}", flush=True)
                if not passed:
                    failed.append(f"seed {seed}: {arguments}")
    print("\n".join(["shake: failed", *failed]) if failed else "shake: all rounds passed")
    return bool(failed)


def _run(arguments: list[str], seed: int) -> bool:
    """Return whether the tests passed; the seed is that of the pauses and of the order."""
    command = [sys.executable, "-m", "pytest", "-q", f"--randomly-seed={seed}", *arguments]
    done = subprocess.run(command, env=os.environ | {VARIABLE: str(seed)}, check=False)
    return done.returncode == 0


@contextmanager
def busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run processes that do nothing but work, for the time of a block."""
    command = [sys.executable, "-c", _BUSY.format(parent=os.getpid())]
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            processes.append(subprocess.Popen(command))
            stack.callback(_end, processes[-1])
        yield processes


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make shake", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each adds one")
    parser.add_argument("--busy", type=int, default=8, help="processes that only use the CPU")
    parser.add_argument("pytest", nargs="+", help="the arguments of one run of pytest")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
