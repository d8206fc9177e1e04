"""One message per mistake, never a traceback: which exceptions the user can fix, and their texts.

Caller: :mod:`.main`. The packages' exceptions are looked up only when something has gone wrong, so that this module
costs nothing to import.
"""

from __future__ import annotations

__all__ = ["CliError", "describe"]


class CliError(Exception):
    """Something the user can fix; the text is all that is printed. ``code`` is the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def describe(error: BaseException) -> str | None:
    """The message for a mistake of the user's, None for a defect of ours."""
    if isinstance(error, MemoryError):  # first: without memory the imports below may fail too
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
    from kubesched.lab.bench.workloads import WorkloadError  # noqa: PLC0415
    from kubesched.lab.sweeps.plan import SweepError  # noqa: PLC0415
    from kubesched.lab.traces.table import TraceError  # noqa: PLC0415

    if isinstance(error, ManifestError | PluginError | ApiError | WorkloadError | StageError | SweepError | TraceError):
        return str(error)
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return f"{error.filename}: {reason}" if error.filename else reason
    return None
