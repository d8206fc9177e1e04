"""``kubesched import``: copy a real cluster to a file from which ``kubesched up --snapshot`` and simulations start.

It reads ``kubectl get … -o yaml|json`` dumps, or an API server by kubeconfig. Secrets and their values stay behind.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kubesched.api.kinds import CORE_EVENTS, RESOURCE_QUOTAS, Kind
from kubesched.api.wire import ApiError, Transport, tolerate
from kubesched.base.times import RealClock
from kubesched.cluster.files import (
    IMPORTED_KINDS,
    Import,
    Manifest,
    Manifests,
    import_dump,
    import_manifests,
    newest_moment,
    save,
)
from kubesched.cluster.store import Store

from .connected import connected
from .console import progress_bar, warn, write
from .errors import CliError
from .interrupts import run_loop
from .saved_file import claimed, refuse_other_file

__all__ = ["from_server", "preemptions_of", "run"]

_PAGE = 500


def run(options: argparse.Namespace) -> int:
    if bool(options.paths) == (options.kubeconfig is not None):
        raise CliError("give either dumps (files or directories) or --kubeconfig FILE", code=2)
    if options.context is not None and options.kubeconfig is None:
        raise CliError("--context NAME needs --kubeconfig FILE", code=2)
    if not options.output:
        raise CliError("--output: the name of the file is empty", code=2)
    with claimed(options.output, "--output"):
        refuse_other_file(options.output, "--output")
        found = (
            import_dump(options.paths)
            if options.paths
            else run_loop(from_server(options.kubeconfig, options.context, quiet=options.quiet))
        )
        for warning in found.warnings:
            warn(warning)
        if not found.objects:
            where = ", ".join(options.paths) or options.kubeconfig
            raise CliError(f"{where}: has no object that can be imported; nothing was saved")
        clock = RealClock()
        store = Store(clock, random=random.Random(options.seed), auto_namespaces=True)
        for refused in found.store_in(store):
            warn(refused)
        everything = (item for table in store.tables.values() for item in table.objects.values())
        count = save(store, options.output, time=max(clock.now(), newest_moment(everything)))
    if not options.quiet:
        left_out = ", ".join(f"{number} {name}" for name, number in sorted(found.left_out.items()))
        write(f"saved {count} objects to {options.output}" + (f"; left out: {left_out}\n" if left_out else "\n"))
    return 0


async def from_server(kubeconfig: str, context: str | None, *, quiet: bool, deleting: bool = False) -> Import:
    """List every kind that is imported; nothing is written. A kind that the server does not know is skipped.

    ``deleting`` keeps pods that are being deleted, and quotas.

    Raises:
        CliError: when the kubeconfig cannot be used or the server cannot be reached.
        ApiError: when the server refuses.
    """
    found = Manifests()
    async with connected(kubeconfig, context) as (transport, _):
        with progress_bar("reading", quiet=quiet) as bar:
            for number, kind in enumerate(IMPORTED_KINDS, 1):
                if kind == RESOURCE_QUOTAS and not deleting:
                    continue
                # Who may not read quotas gets an answer without them.
                with tolerate(404, 403) if kind == RESOURCE_QUOTAS else tolerate(404):
                    try:
                        found.objects += [
                            Manifest(kind, {**data, "apiVersion": kind.api_version, "kind": kind.kind}, kubeconfig)
                            async for data in _list(transport, kind)
                        ]
                    except ApiError as error:
                        if error.code != 403 or not kind.custom:
                            raise
                        # A server refuses a kind that it does not have, too, to a role without a rule for it.
                        found.warnings.append(f"{kind.group_resource} were not read: {error}")
                bar.update(number, len(IMPORTED_KINDS))
    return import_manifests(found, deleting=deleting)


async def preemptions_of(kubeconfig: str, context: str | None, names: Sequence[str]) -> list[str]:
    """Return a sentence for each event by which a scheduler said that it preempted one of these pods.

    ``names`` are ``namespace/name``. Nothing is written.

    Raises:
        CliError, ApiError: as :func:`from_server`.
    """
    found = []
    async with connected(kubeconfig, context) as (transport, _):
        for name in names:
            namespace, _, pod = name.partition("/")
            about = f"involvedObject.kind=Pod,involvedObject.name={pod},reason=Preempted"
            page = await transport.list(CORE_EVENTS, namespace=namespace, field_selector=about, limit=_PAGE)
            for event in (item.data() for item in page.items):
                when = event.get("lastTimestamp") or event.get("eventTime") or "unknown time"
                by = event.get("reportingComponent") or (event.get("source") or {}).get("component") or "a scheduler"
                found.append(f"{name} was evicted at {when}, says {by}: {event.get('message', '')}")
    return found


async def _list(transport: Transport, kind: Kind) -> AsyncIterator[dict[str, Any]]:
    """Yield every object of a kind, page by page."""
    token = ""
    while True:
        page = await transport.list(kind, limit=_PAGE, continue_token=token)
        for item in page.items:
            yield item.data()
        token = page.continue_token
        if not token:
            return
