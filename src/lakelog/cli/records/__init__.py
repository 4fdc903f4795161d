"""Records in the commands `produce` and `consume`: parsing input, sending, reading, formatting.

Read `input_lines.py` and `delivery.py` for `produce`, then `pump.py` and `record_text.py` for
`consume`. Nothing here knows the options of a command.
"""
