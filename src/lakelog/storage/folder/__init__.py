"""The data folder: its logs, checkpoint files, lock, identity, and space in reserve.

Read `directory` first; its docstring lists the files. The files of one log belong to `log` and
`segments`.
"""
