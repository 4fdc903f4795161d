"""A client of a schema registry with Confluent's REST API, and values that such schemas describe.

- `schema_id.py`: finds the id of a value's schema, in a header or before the value.
- `client.py`: asks the registry, over HTTP.
- `schemas.py`: keeps the schemas of a process, so that each id is asked once.
- `avro_types.py`, `avro.py`: Avro schemas, their columns, and their values.
- `json_schema.py`: the columns of JSON Schemas.
- `values.py`: converts the values of record batches into the columns `data` and `rescued`.
"""
