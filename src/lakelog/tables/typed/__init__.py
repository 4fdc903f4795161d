"""Typed fields of JSON values, in two columns beside the columns of the record.

The struct `data` has a field for each field of the JSON objects in the topic's values. What does
not fit goes into `rescued`, a JSON object from paths to values, so that no part of a value is lost.
Typed fields are never columns of the table itself: a field may be called `offset`.

- `shapes.py`: infers the fields from values.
- `fitting.py`: converts values into the two columns.
- `rows.py`: adds the two columns to rows, and reads the first values of a batch for their fields.
- `columns.py`: the two columns of a table.
"""
