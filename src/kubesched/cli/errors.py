"""Errors that a user can fix, each as one message without a traceback.

Caller: :mod:`.main`. Exception classes of other packages are imported only after an error, so that importing this
module costs nothing.
"""

from __future__ import annotations

__all__ = ["CliError", "describe"]


class CliError(Exception):
    """Mistake that the user can fix. The text is all that is printed. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def describe(error: BaseException) -> str | None:
    """Return the message for a user's mistake; None for a defect of this program."""
    if isinstance(error, MemoryError):  # checked first, because without memory the imports below may fail, too
        return "there is not enough memory for this; give the process more, or make the run smaller"
    from kubesched.api.wire import ApiError  # noqa: PLC0415
    from kubesched.base.extras import MissingPackageError  # noqa: PLC0415 - see above
    from kubesched.cluster.files import ManifestError  # noqa: PLC0415
    from kubesched.cluster.kubelets import StageError  # noqa: PLC0415
    from kubesched.scheduler.config import ConfigError  # noqa: PLC0415
    from kubesched.scheduler.framework.registry import PluginError  # noqa: PLC0415

    if isinstance(error, MissingPackageError):
        return str(error)
    if isinstance(error, ConfigError):
        return error.plain_message
    from kubesched.explain.records import DecisionsError  # noqa: PLC0415
    from kubesched.lab.bench.workloads import WorkloadError  # noqa: PLC0415
    from kubesched.lab.sweeps.plan import SweepError  # noqa: PLC0415
    from kubesched.lab.traces.table import TraceError  # noqa: PLC0415

    if isinstance(
        error,
        ManifestError | PluginError | ApiError | WorkloadError | StageError | SweepError | TraceError | DecisionsError,
    ):
        return str(error)
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason
    return None
