"""The sink: writes the rows of a query as records of topics.

- `options.py`: the options of a query and their meaning, and the errors of a sink.
- `control.py`: the control record of a sink, and the decision whether a batch is written.
- `attempts.py`: one attempt of a task, in a transaction of its own, and why it is refused.
- `task.py`: the columns of rows, the rows of one task, and the option that an error names.
- `writers.py`: the writers that Spark calls; they commit all tasks as one set.
- `shared.py`: the rows of a `foreachBatch`, in one transaction for all tasks.
- `transaction.py`: that transaction, in the driver.

`options` and `control` decide and do no I/O. Start with `control.py`.
"""
