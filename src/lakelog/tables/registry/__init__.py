"""A client of a schema registry with Confluent's REST API, and values that such schemas describe.

- `client.py`: finds the id of a value's schema, and asks the registry for it, over HTTP.
- `schemas.py`: keeps the schemas of a process, so that each id is asked once, the columns of JSON
  Schemas, and the conversion of values into the columns `data` and `rescued`.
- `avro_types.py`, `avro.py`: Avro schemas, their columns, and their values.
"""
