"""The base of classes that a `with` block closes."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closeable:
    """An object whose `with` block ends with `close`, also after an error, which is raised on."""

    __slots__ = ()

    def close(self) -> None:
        """Release the resources of the object."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
