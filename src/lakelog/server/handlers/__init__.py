"""One module per API: `handle(broker, context, request)` answers it. They do not import each other."""
