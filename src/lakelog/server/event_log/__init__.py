"""Log lines for operators, in a number that peers cannot raise without limit.

Start with `log_window`, the limit. A module is here if it decides what is logged of something that
others decide; log lines about a module's own work are in that module.
"""
