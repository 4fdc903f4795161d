"""`python -m lakelog.testing.simulation`: see `runner`."""

import sys

from lakelog.testing.simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
