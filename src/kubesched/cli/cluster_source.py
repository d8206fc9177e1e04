"""Cluster that a command looks at, by ``--kubeconfig``, ``--from`` and ``-f``."""

from __future__ import annotations

import argparse

from kubesched.base.collector import collector_off
from kubesched.cluster.files import Manifests, load_manifests
from kubesched.lab.simulate.inputs.given import cluster_of

from .errors import CliError
from .import_command import from_server
from .interrupts import run_loop

__all__ = ["given_cluster"]


def given_cluster(
    options: argparse.Namespace, *, option: str = "-f", hollow: bool = False, deleting: bool = True
) -> Manifests:
    """Objects of the cluster: from files, a saved cluster or dump, or an API server.

    ``option`` is the one that gives manifests, ``-f`` or ``--cluster``. With ``hollow`` there may be no objects at all.
    Without ``deleting``, pods that are being deleted are left out.

    Raises:
        CliError: when the options contradict each other, or there is nothing to read.
    """
    paths: list[list[str]] = options.filename if option == "-f" else options.cluster
    if options.start is not None and options.kubeconfig is not None:
        raise CliError("--from and --kubeconfig: give one of them", code=2)
    if not paths and options.start is None and options.kubeconfig is None:
        if hollow:
            return Manifests()
        last = f"{option} MANIFESTS, or --server URL" if "server" in options else f"or {option} MANIFESTS"
        text = f"--kubeconfig FILE, --from FILE (a dump or saved cluster), {last}"
        raise CliError(f"give the cluster: {text}", code=2)
    if options.context is not None and options.kubeconfig is None:
        raise CliError("--context NAME needs --kubeconfig FILE", code=2)
    with collector_off():
        manifests = load_manifests([path for group in paths for path in group])
        if options.start is not None:
            manifests.extend(cluster_of(options.start, deleting=deleting))
        if options.kubeconfig is not None:
            reading = from_server(options.kubeconfig, options.context, quiet=options.quiet, deleting=deleting)
            live = run_loop(reading)
            manifests.extend(Manifests(live.objects, live.warnings))
    if not manifests.objects and not manifests.problems:
        raise CliError("the cluster has no objects that can be read")
    return manifests
