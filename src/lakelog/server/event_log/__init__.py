"""Log lines for operators, in a number that peers cannot raise without limit.

Start with `LogWindow` of `rate_limited`, the limit. The modules log decisions of other rooms; a
module that logs its own work does so itself.
"""
