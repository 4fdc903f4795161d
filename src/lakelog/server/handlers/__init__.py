"""One module per API: `handle(broker, context, request)` answers it.

Handlers do not import each other.
"""
