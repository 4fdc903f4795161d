"""The sink: writes the rows of a query as records of topics.

- `options.py`: the options of a query and their meaning.
- `columns.py`: the columns of a row with their checks, and Arrow columns as records of a producer.
- `routing.py`: the partition of each row, before the rows are shuffled.
- `control.py`: the control record of a sink, and the decision whether a batch is written.
- `content.py`: the number of a batch's rows, and their digest.
- `attempts.py`: one attempt of a task, in a transaction of its own.
- `sets.py`: the commit of all tasks as one set (docs/formats/commit-sets.md).
- `refusals.py`: refusals of the coordinator, in the words of the options; a full refresh.
- `task.py`: writes the rows of one task, and names the option for each error.
- `shared.py`: the rows of a `foreachBatch`, in one transaction for all tasks.
- `transaction.py`: that transaction, in the driver.
- `writers.py`: the writers that Spark calls.

`options`, `columns`, `routing`, `control` and `content` decide and do no I/O. Start with
`control.py`.
"""
