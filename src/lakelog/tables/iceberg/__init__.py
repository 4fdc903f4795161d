"""Iceberg tables of a fixed schema: catalog, table, data files, snapshots.

Read `table.py` first. Modules that most processes of a job import (`address.py`, `columns.py`,
`data_file.py`, `warehouse.py`) import PyIceberg only when they need it, because it takes about a
second to import. Nothing here reads a topic or knows how far it is archived.
"""
