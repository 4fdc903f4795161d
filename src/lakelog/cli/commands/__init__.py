"""The commands: one module per noun, each with the commands of the noun as functions.

Read `topic.py` first. `main.py` imports a module only when its noun is used. `group_plan.py` and
`stored_configs.py` are parts of `group` and `config`. Commands return data; `render.py` prints it.
"""
