"""The `lakelog` command line.

- `commands/`: the commands, one module per noun.
- `records/`: records as input and output of `produce` and `consume`.
- `declaration.py`: how they are declared, parsed and described, with `argparse`.
- This folder: what several commands share, such as options, positions, output and errors.

stdout carries data, stderr all other output. `failures.py` turns exceptions into errors and exit
statuses. Read `main.py` first.
"""
