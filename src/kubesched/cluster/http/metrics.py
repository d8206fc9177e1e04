"""``/metrics`` of the API server, with upstream's names: requests, watches and stored objects.

Requests are counted in a dictionary; ``prometheus_client`` makes the text on request. Caller: :mod:`.server`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sized
from typing import Any

from kubesched.api.wire import ApiError

from ..store import Store
from .calls import parse_path
from .catalog import Catalog

__all__ = ["Requests"]


class Requests:
    """Counts of a server's requests, by method, resource and status code.

    ``watches`` are the open watches; only their number is read.
    """

    def __init__(self, catalog: Catalog, store: Store, watches: Sized) -> None:
        self._catalog, self._store, self._watches = catalog, store, watches
        self._counts: Counter[tuple[str, str, str, str, str, int]] = Counter()

    def count(self, method: str, path: str, code: int) -> None:
        """Count an answer. Paths that are not served share one count, since clients can ask for any path."""
        target = parse_path(path)
        found = self._catalog.find(target.group, target.version, target.plural) if target is not None else None
        if target is None or found is None or (target.subresource and found.subresource(target.subresource) is None):
            self._counts[method, "", "", "", "", code] += 1
        else:
            self._counts[method, target.group, target.version, target.plural, target.subresource, code] += 1

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus.

        Raises:
            ApiError: 501, when ``prometheus_client`` is not installed.
        """
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415
        except ImportError:
            text = "metrics need the package prometheus-client, which is not installed here"
            raise ApiError(501, "NotImplemented", text) from None
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        return generate_latest(registry).decode()

    def collect(self) -> Iterator[Any]:
        """Yield the current numbers, for the library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        labels = ("verb", "group", "version", "resource", "subresource", "code")
        requests = CounterMetricFamily("apiserver_request", "Requests that were answered.", labels=labels)
        for (*names, code), number in sorted(self._counts.items()):
            requests.add_metric([*map(str, names), str(code)], number)
        yield requests
        objects = GaugeMetricFamily("apiserver_storage_objects", "Stored objects.", labels=("resource",))
        for kind, table in self._store.tables.items():
            if kind == table.kind:
                objects.add_metric([kind.group_resource], len(table.objects))
        yield objects
        yield GaugeMetricFamily("apiserver_longrunning_requests", "Open watches.", value=len(self._watches))
