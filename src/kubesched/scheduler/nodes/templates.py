"""Templates of pods: the data that pods with one spec share is derived once.

Pods of one template are decoded with one shared spec object (:mod:`kubesched.api.shared_parts`). The first of them
becomes the model of the others. Caller: the records of the scheduling queue.
"""

from __future__ import annotations

from typing import Final

from kubesched.api.requests import has_actual_resources
from kubesched.api.types import Pod

from .podinfo import PodInfo

__all__ = ["PodTemplates"]

#: Most models that are kept; at this number all are dropped.
_MOST: Final = 1 << 10


class PodTemplates:
    """Model pods, by spec object and namespace."""

    def __init__(self) -> None:
        # A model keeps its spec object alive, so no other object can get the same id.
        self._models: dict[tuple[int, str], PodInfo] = {}

    def info(self, pod: Pod) -> PodInfo:
        """Return a PodInfo that shares its model's amounts, ports and terms, and later its signature.

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
