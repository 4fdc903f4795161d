"""The commands: one module per noun, each with the commands of the noun as functions.

Read `topic.py` first. `main.py` imports a module only when its noun is used. `stored_configs.py`
and `table_upkeep.py` are parts of `config` and `table`. Commands return data; `render.py` prints
it.
"""
