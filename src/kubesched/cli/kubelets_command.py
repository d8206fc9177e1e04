"""``kubesched kubelets``: hollow nodes on an API server of somebody else, real or embedded, until Ctrl-C.

It makes Node objects with a label of its own, renews their Leases, and runs the pods that are bound to them by the same
rules as ``kubesched up``. Nodes without the label, and their pods, are never written to. Requests are sent one after the
other, those of heartbeats beside those of pods.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from kubesched.api.kinds import LEASES, NODES
from kubesched.api.wire import ApiError, Item, Transport, tolerate
from kubesched.base.tasks import Supervisor
from kubesched.base.times import RealClock, timestamp
from kubesched.cluster.kubelets import RUN_BY, HollowKubelets, make_nodes, zone_names
from kubesched.lab.simulate.inputs.given import node_template_of

from .connected import connected
from .console import log_warnings, warn, write
from .errors import CliError
from .interrupts import run_loop
from .pod_life import pod_stages
from .stopping import STOPPED, StopSignal

__all__ = ["run"]

#: Seconds between two renewals of a node's Lease, as with real kubelets.
HEARTBEAT_SECONDS: Final = 10.0
#: Seconds between two remarks about requests that failed.
_REPORT_SECONDS: Final = 10.0
_LEASE_NAMESPACE: Final = "kube-node-lease"
_PAGE: Final = 500
#: Most nodes of a process: their Leases are renewed one after the other, every ten seconds.
_MOST_NODES: Final = 5_000
_ROLE: Final = "deploy/kustomize/components/kubelets/rbac.yaml has the permissions that are needed"


def run(options: argparse.Namespace) -> int:
    log_warnings()
    if not options.kubeconfig:
        raise CliError("give --kubeconfig FILE: nodes are added to that cluster", code=2)
    if options.nodes > _MOST_NODES:
        text = f"one process runs {_MOST_NODES} nodes at most; start another one with another --name"
        raise CliError(f"--nodes {options.nodes}: {text}", code=2)
    return run_loop(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    stop, clock = StopSignal(asyncio.get_running_loop()), RealClock()
    template = node_template_of(options.node_template, dict(options.node_resources))
    nodes = list(
        make_nodes(
            options.nodes,
            template,
            prefix=f"{options.name}-",
            zones=zone_names(options.zones),
            now=timestamp(clock.now()),
        )
    )
    async with connected(options.kubeconfig, options.context) as (transport, url):
        kubelets = HollowKubelets(
            transport,
            clock,
            stages=pod_stages(options),
            rng=random.Random(options.seed),
            heartbeat_seconds=HEARTBEAT_SECONDS,
            name=options.name,
        )
        try:
            made, known = await stop.unless(_register(transport, nodes, options.name))
        except CliError as error:
            if error.code == STOPPED:
                what = _rest(options)
                if options.delete_nodes:
                    await _remove(transport, options)
                    what = "they were deleted"
                raise CliError(f"stopped while nodes were made; {what}", code=STOPPED) from None
            raise
        async with Supervisor("kubelets of an API server") as tasks:
            tasks.spawn(kubelets.run(), "kubelets")
            tasks.spawn(_report(kubelets, url), "report")
            if not options.quiet:
                _greet(options, url, made, known)
            await stop.wait()
        if options.delete_nodes:
            await _remove(transport, options)
    return 0


async def _register(transport: Transport, nodes: Sequence[dict[str, Any]], name: str) -> tuple[int, int]:
    """Make the nodes that do not exist. Return their number, and the number of nodes that an earlier run left.

    Raises:
        CliError: when a node of that name is not ours, before anything is written, or when the server refuses.
    """
    try:
        ours, wanted = set(), {node["metadata"]["name"] for node in nodes}
        async for item in _each(transport):
            if item.typed.metadata.labels.get(RUN_BY) == name:
                ours.add(item.name)
            elif item.name in wanted:
                text = f"node {item.name} exists without the label {RUN_BY}={name}, and is left alone"
                raise CliError(f"{text}; choose another --name")
        if not nodes and not ours:
            raise CliError(f"there are no nodes with the label {RUN_BY}={name}; give --nodes N to make some", code=2)
        missing = [node for node in nodes if node["metadata"]["name"] not in ours]
        for node in missing:
            labels = {**node["metadata"]["labels"], RUN_BY: name}
            await transport.create(NODES, "", {**node, "metadata": {**node["metadata"], "labels": labels}})
    except ApiError as error:
        hint = f"; {_ROLE}" if error.code == 403 else ""
        raise CliError(f"the API server refuses: {error}{hint}") from None
    return len(missing), len(ours)


async def _each(transport: Transport, selector: str = "") -> AsyncIterator[Item]:
    """Yield every node that a label selector chooses, page by page."""
    token = ""
    while True:
        page = await transport.list(NODES, limit=_PAGE, continue_token=token, label_selector=selector)
        for item in page.items:
            yield item
        token = page.continue_token
        if not token:
            return


async def _remove(transport: Transport, options: argparse.Namespace) -> None:
    """Delete the nodes of this name and their Leases."""
    count = 0
    async for item in _each(transport, f"{RUN_BY}={options.name}"):
        with tolerate(404, 409):
            await transport.delete(NODES, "", item.name, uid=item.uid)
            count += 1
        with tolerate(404):
            await transport.delete(LEASES, _LEASE_NAMESPACE, item.name)
    if not options.quiet:
        write(f"deleted {count} nodes\n")


async def _report(kubelets: HollowKubelets, url: str) -> None:
    """Say from time to time that requests fail; they are tried again."""
    told = 0
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        problems = kubelets.problems
        if problems.total > told:
            warn(f"{problems.total - told} problems on {url}, the last: {problems[-1]}")
            told = problems.total


def _greet(options: argparse.Namespace, url: str, made: int, known: int) -> None:
    what = f"{made} made, {known} there before (label {RUN_BY}={options.name}; process {os.getpid()})"
    write(f"hollow nodes on {url}: {what}\n{_rest(options)}\nstop with Ctrl-C\n")
    sys.stdout.flush()


def _rest(options: argparse.Namespace) -> str:
    """Return what becomes of the nodes at the end."""
    if options.delete_nodes:
        return "they are deleted at the end"
    return f"they stay at the end: kubectl delete node,lease -A -l {RUN_BY}={options.name}"
