"""Record batches as Arrow columns, and back.

The client, the table engine and Spark jobs read and write records in columns through this package.
It fetches and sends nothing. `decoding/decode.py` has the entry point `decode_columns`.

pyarrow is imported when it is first needed. A loop that Numba compiles does the work if Numba is
installed (`lakelog[fast]`), otherwise plain Python with equal results.
"""
