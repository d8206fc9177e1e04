"""What pods with the same spec have in common is derived once.

Pods of one template are decoded with one shared spec object (:mod:`kubesched.api.shared_parts`). The first of them is the
model of the others. Caller: the scheduling queue's records.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.requests import has_actual_resources
from kubesched.api.types import Pod

from .podinfo import PodInfo

__all__ = ["PodTemplates"]

_MOST: Final = 1 << 10


class PodTemplates:
    """The models, by spec and namespace; emptied when there are too many."""

    def __init__(self) -> None:
        # A model keeps its spec alive, so no other has the same identity.
        self._models: dict[tuple[int, str], PodInfo] = {}

    def info(self, pod: Pod) -> PodInfo:
        """A PodInfo that shares what its model has: amounts, ports, terms, and later its signature.

        Raises:
            QuantityError: when a request is not a quantity.
        """
        if has_actual_resources(pod):
            return PodInfo(pod)
        key = (id(pod.spec), pod.metadata.namespace)
        model = self._models.get(key)
        if model is not None:
            return model.alike(pod)
        info = PodInfo(pod)
        info.derive_all()
        if len(self._models) >= _MOST:
            self._models.clear()
        self._models[key] = info
        return info
