"""Decisions of the controller: requests become records. Pure functions of the image."""
