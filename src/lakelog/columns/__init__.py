"""Record batches as Arrow columns, and back.

The client, the table engine and Spark jobs read and write records in columns through this package.
It fetches and sends nothing. The entry points are `decode_columns` in `decoding/decode.py` and
`RowEncoder` in `encoding/encode.py`.

pyarrow is imported when it is first needed. Loops that Numba compiles do the work if Numba is
installed (the extra `fast`), otherwise plain Python with equal results (`compiler.py`,
`packages.py`).
"""
