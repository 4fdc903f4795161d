"""`python -m lakelog`: the `lakelog` command, where its script is not on the PATH."""

from lakelog.cli.main import main

if __name__ == "__main__":
    main()
