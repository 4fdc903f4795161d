"""Record batches of version 2: parsing, building, compressing and verifying them.

Read `batch.py` first, the header of a batch, then `record.py`, the layout of its records.
`builder.py` builds batches, `verify.py` validates their records step by step, and `compression.py`
is the only module with compression libraries.

Everything works on bytes in memory and knows neither logs nor messages of the protocol.
"""
