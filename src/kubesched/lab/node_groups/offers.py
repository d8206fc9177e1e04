"""Templates of nodes from the rows of a catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubesched.cluster.kubelets import node_template

from .catalogue import Catalogue, Offer

__all__ = ["INSTANCE_TYPE", "size_of", "template_of"]

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_ARCH: Final = "kubernetes.io/arch"
_DEFAULT_PODS: Final = "110"
_DEFAULT_STORAGE: Final = "100Gi"


def size_of(offer: Offer, catalogue: Catalogue) -> dict[str, str]:
    """Return the amounts of a row, or of the row whose size it has; empty when neither has any."""
    return offer.resources or (catalogue[offer.instance_type].resources if offer.instance_type in catalogue else {})


def template_of(
    resources: Mapping[str, str],
    *,
    instance_type: str = "",
    arch: str = "amd64",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return a Node without a name. Pods are 110 and storage is 100Gi where the amounts have none."""
    amounts = {"pods": _DEFAULT_PODS, "ephemeral-storage": _DEFAULT_STORAGE, **resources}
    more = {name: one for name, one in amounts.items() if name not in ("cpu", "memory", "pods")}
    own = {_ARCH: arch, **({INSTANCE_TYPE: instance_type} if instance_type else {}), **(labels or {})}
    return node_template(
        cpu=amounts.get("cpu", "0"),
        memory=amounts.get("memory", "0"),
        pods=amounts["pods"],
        labels=own,
        taints=list(taints),
        extended=more,
    )
