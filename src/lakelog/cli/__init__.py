"""The `lakelog` command: one module per noun, imported only when the noun is used.

stdout carries data, stderr all other output. Commands are plain functions that return data;
`render.py` prints it. `failures.py` turns exceptions into errors and exit statuses. Read `main.py`
first.
"""
