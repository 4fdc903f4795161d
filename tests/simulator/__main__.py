"""`python -m simulator`: see `runner`."""

import sys

from simulator.runner import main

if __name__ == "__main__":
    sys.exit(main())
