"""Executor of runs on a Ray cluster, by its address.

Needs the extra ``ray``; kubesched must be installed on the cluster's machines. Caller: :mod:`.running`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final

from kubesched.base.extras import MissingPackageError, needing

from .plan import SweepError

__all__ = ["LOCAL", "RayExecutor"]

#: Address that starts Ray on this machine, for as long as the sweep runs.
LOCAL: Final = "local"
#: Seconds to connect.
_PATIENCE: Final = 10.0


def _check_reachable(address: str) -> None:
    """Check that something listens at the address: Ray itself takes minutes to find out.

    Raises:
        SweepError: when nothing does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        raise SweepError(f"there is no Ray cluster at {address}: {error}") from None


class RayExecutor(Executor):
    """Executor on a Ray cluster. ``address`` is as for ``ray.init``.

    That is ``local``, ``auto``, ``host:port`` or ``ray://host:port``.

    An existing connection is used instead of the address, and left open.
    """

    def __init__(self, address: str, processes: int | None = None) -> None:
        """Connect to the cluster. With the address ``local``, start one with ``processes`` CPUs.

        Raises:
            SweepError: when Ray is not installed, or there is no cluster at the address.
        """
        _check_reachable(address)
        try:
            with needing("a run on Ray", "ray"):
                import ray  # noqa: PLC0415 - an extra
        except MissingPackageError as error:
            raise SweepError(str(error)) from None
        self._ray: Any = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
            if address == LOCAL:
                options |= {"num_cpus": processes, "include_dashboard": False}
            try:
                ray.init(address=address, **options)
            except (ConnectionError, RuntimeError, ValueError, OSError) as error:
                raise SweepError(f"there is no Ray cluster at {address}: {error}") from error
        self._calls: dict[Any, Any] = {}
        self._running: set[Any] = set()

    @property
    def width(self) -> int:
        """Return the number of calls that the cluster can make at a time, now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # There are no retries, because a run that ends its worker would do so again.
        call = self._calls.get(fn)
        if call is None:
            call = self._calls[fn] = self._ray.remote(max_retries=0)(fn)
        reference = call.remote(*args, **kwargs)
        self._running.add(reference)
        future: Future[Any] = reference.future()
        future.add_done_callback(lambda done: self._running.discard(reference))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the connection, and the cluster if it was started for this. Calls that are not awaited are cancelled."""
        if cancel_futures:
            for reference in list(self._running):
                self._ray.cancel(reference)
        if self._ours:
            self._ray.shutdown()
            self._ours = False
