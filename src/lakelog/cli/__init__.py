"""The `lakelog` command line.

- `commands/`: the commands, one module per noun.
- `records/`: records as input and output of `produce` and `consume`.
- This folder: what several commands share, such as options, positions, output and errors.

stdout carries data, stderr all other output. `failures.py` turns exceptions into errors and exit
statuses. Read `main.py` first.
"""
