"""Errors of schemas and of the registry."""

from __future__ import annotations


class RegistryUnavailableError(Exception):
    """The registry does not answer, or cannot serve requests now."""


class RegistryAccessError(Exception):
    """The registry rejects the credentials, or the URL is not that of a registry."""


class SchemaMissingError(Exception):
    """The registry has no schema with this id, or no such subject or version."""


class UnreadableValueError(Exception):
    """A value that its schema does not describe, or that names no schema."""


class UnsupportedSchemaError(UnreadableValueError):
    """A schema whose values cannot be columns; the text has the reason."""
