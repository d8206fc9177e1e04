"""Runs on a Ray cluster, by its address. Needs the extra ``ray``; kubesched must be installed on the cluster's machines.

Caller: :mod:`.running`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final

from .plan import SweepError

__all__ = ["LOCAL", "RayExecutor"]

#: The address that starts Ray on this machine, for as long as the sweep runs.
LOCAL: Final = "local"


class RayExecutor(Executor):
    """``address`` as for ``ray.init``: ``local``, ``auto``, ``host:port`` or ``ray://host:port``.

    A connection that exists is used, and left open; then the address is not.
    """

    def __init__(self, address: str, processes: int | None = None) -> None:
        """Raises:
        SweepError: when Ray is not installed, or there is no cluster at the address.
        """
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise SweepError(f"runs on Ray need more packages: pip install 'kubesched[ray]' ({error})") from error
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

    @property
    def width(self) -> int:
        """How many calls the cluster can make at a time, now."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # A run that ends its worker would do so again: it fails at once.
        call = self._calls.get(fn)
        if call is None:
            call = self._calls[fn] = self._ray.remote(max_retries=0)(fn)
        future: Future[Any] = call.remote(*args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the connection, and the cluster if it was started for this."""
        if self._ours:
            self._ray.shutdown()
            self._ours = False
