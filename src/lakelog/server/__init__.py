"""The broker process: sockets, dispatch, one handler per API, and the object graph."""
