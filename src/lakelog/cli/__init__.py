"""The `lakelog` command: one module per noun, loaded only when it is asked for.

stdout carries data, stderr everything else. Command bodies are plain functions that return data;
`render` prints it. Errors and exit statuses are those of `failures`.
"""
