"""Status: the answer of an extension point. A rejection is a value, a fault is an exception.

Wherever a status is expected, None represents success. Source: rules/framework §1 (upstream ``framework.Status``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

__all__ = ["Code", "Status", "is_rejected", "is_success"]


class Code(enum.IntEnum):
    """Code of a status; ``label`` is its name in metrics and golden files."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS: Final = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}

_REJECTED: Final = frozenset((Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING))


class Status:
    """Status: a code, ordered reasons, an optional wrapped error, and the plugin that answered.

    A plugin sets code and reasons, the framework fills in ``plugin``. Two statuses are equal if their code, reasons and
    plugin are equal and they wrap the same error object.
    """

    __slots__ = ("code", "error", "plugin", "reason_list")

    def __init__(
        self,
        code: Code,
        *reasons: str,
        error: BaseException | None = None,
        plugin: str = "",
    ) -> None:
        self.code = code
        self.reason_list = reasons
        self.error = error
        self.plugin = plugin

    @classmethod
    def unschedulable(cls, *reasons: str) -> Status:
        """Make the status of a pod that does not fit, but would perhaps fit if other pods were removed."""
        return cls(Code.UNSCHEDULABLE, *reasons)

    @classmethod
    def unresolvable(cls, *reasons: str) -> Status:
        """Make the status of a pod that does not fit, even if other pods were removed."""
        return cls(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, *reasons)

    @classmethod
    def skip(cls) -> Status:
        return cls(Code.SKIP)

    @classmethod
    def wait(cls, *reasons: str) -> Status:
        return cls(Code.WAIT, *reasons)

    @classmethod
    def pending(cls, *reasons: str) -> Status:
        return cls(Code.PENDING, *reasons)

    @classmethod
    def from_error(cls, error: BaseException | str, plugin: str = "") -> Status:
        """Make the status of a failure: code Error, wrapping ``error`` (or a RuntimeError with that text)."""
        return cls(Code.ERROR, error=RuntimeError(error) if isinstance(error, str) else error, plugin=plugin)

    @property
    def is_rejected(self) -> bool:
        return self.code in _REJECTED

    def reasons(self) -> list[str]:
        """Return the wrapped error's text, if there is one, and then the reasons."""
        return [str(self.error), *self.reason_list] if self.error is not None else list(self.reason_list)

    def message(self) -> str:
        return ", ".join(self.reasons())

    def as_error(self) -> BaseException | None:
        """Return the wrapped error, or a new one with the message; None for Success, Wait and Skip."""
        if self.code in (Code.SUCCESS, Code.WAIT, Code.SKIP):
            return None
        return self.error if self.error is not None else RuntimeError(self.message())

    def with_plugin(self, plugin: str) -> Status:
        """Return a copy with this plugin."""
        return Status(self.code, *self.reason_list, error=self.error, plugin=plugin)

    def with_reasons(self, reasons: Iterable[str]) -> Status:
        """Return a copy with more reasons at the end."""
        return Status(self.code, *self.reason_list, *reasons, error=self.error, plugin=self.plugin)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Status):
            return NotImplemented
        return (
            self.code == other.code
            and self.reason_list == other.reason_list
            and self.plugin == other.plugin
            and self.error is other.error
        )

    def __hash__(self) -> int:
        return hash((self.code, self.reason_list, self.plugin))

    def __repr__(self) -> str:
        by = f" by {self.plugin}" if self.plugin else ""
        return f"<{self.code.label}{by}: {self.message()}>" if self.reasons() else f"<{self.code.label}{by}>"


def is_success(status: Status | None) -> bool:
    """Return True for None and for code Success."""
    return status is None or status.code is Code.SUCCESS


def is_rejected(status: Status | None) -> bool:
    """Return True for the codes Unschedulable, UnschedulableAndUnresolvable and Pending."""
    return status is not None and status.code in _REJECTED
