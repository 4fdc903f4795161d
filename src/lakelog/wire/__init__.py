"""The codec of Kafka's protocol: declarations of messages, and functions compiled from them.

Read `schema.py` first, the language of declarations. `codec.py` has the compiled codec
(`compile.py`, `encoder.py`, `decoder.py`), and `framing.py` the frames and headers around messages.
`template.py` encodes and recognizes messages that differ only in a few fields.

Record batches are opaque here (`lakelog.records`), and no module knows a socket.
"""
