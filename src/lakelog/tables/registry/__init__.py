"""A client of a schema registry with Confluent's REST API, and values that such schemas describe.

- `client.py`: finds the id of a value's schema, and asks the registry for it, over HTTP.
- `schemas.py`: keeps the schemas of a process, so that each id is asked once, and the columns of
  JSON Schemas.
- `avro_types.py`, `avro.py`: Avro schemas, their columns, and their values.
- `values.py`: converts the values of record batches into the columns `data` and `rescued`.
"""
