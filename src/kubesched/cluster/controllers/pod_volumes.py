"""The claims of pods: those of ephemeral volumes are made, and those that wait for their first consumer get its node.

A real scheduler's VolumeBinding chooses volumes before it binds a pod. Ours has no such plugin yet, so the choice is
made here, after the pod is bound: a free volume that the pod's node reaches is set aside, or else the claim is marked
with the node, and :mod:`.volumes` binds or provisions. What a scheduler has written already is left alone.
"""

from __future__ import annotations

from typing import Any, Final

from ...api.decode import DecodeError, from_builtins
from ...api.kinds import CLAIMS, NODES, PODS, STORAGE_CLASSES, VOLUMES
from ...api.selectors import NodeSelectorMatcher, SelectorError
from ...api.types import Node, NodeSelector, Pod
from ...api.wire import ApiError, Item
from .base import Controller
from .context import Context, Data
from .pods import is_finished
from .volume_match import best_volume
from .volumes import SELECTED_NODE

__all__ = ["PodVolumes"]

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class PodVolumes(Controller):
    """Sees to it that pods' claims exist and are bound. Keys are pods."""

    name = "ephemeral-volume"
    component = "ephemeral-volume-controller"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = context.cache(CLAIMS)
        self._volumes = context.cache(VOLUMES)
        self._classes = context.cache(STORAGE_CLASSES)
        self._nodes = context.cache(NODES)
        self._users: dict[str, dict[str, None]] = {}
        self.watch(PODS, self._pod_changed)
        self.watch(CLAIMS, self._claim_changed)
        self.watch(VOLUMES, self._supply_changed)
        self.watch(STORAGE_CLASSES, self._supply_changed)

    def _pod_changed(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        if item is None or not item.typed.spec.volumes:
            return
        for _, key in _claims_of(item.typed):
            users = self._users.setdefault(key, {})
            if new is not None:
                users[item.key] = None
            else:
                users.pop(item.key, None)
                if not users:
                    del self._users[key]
        if new is not None:
            self.queue.add(item.key)

    def _claim_changed(self, old: Item | None, new: Item | None) -> None:
        item = new or old
        if item is not None:
            for pod in self._users.get(item.key, ()):
                self.queue.add(pod)

    def _supply_changed(self, old: Item | None, new: Item | None) -> None:
        if old is None:
            for users in self._users.values():
                for pod in users:
                    self.queue.add(pod)

    async def reconcile(self, key: str) -> None:
        item = self.context.pods.get(key)
        if item is None or is_finished(item.typed) or self.context.is_going(item):
            return
        pod: Pod = item.typed
        for template, claim_key in _claims_of(pod):
            claim = self._claims.get(claim_key)
            if claim is None and template is not None:
                claim = await self._make(pod, claim_key.partition("/")[2], template)
            if claim is not None and pod.spec.node_name:
                node = self._nodes.get(pod.spec.node_name)
                if node is not None:
                    await self._choose(claim, node.typed)

    async def _make(self, pod: Pod, name: str, template: Data) -> Item | None:
        """The claim of an ephemeral volume, which is deleted with its pod."""
        given = template.get("metadata") or {}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
        metadata |= {
            "name": name,
            "namespace": pod.namespace,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        body = {"metadata": metadata, "spec": template.get("spec") or {}}
        try:
            return await self.context.create(CLAIMS, pod.namespace, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            return None  # its event brings us here again

    async def _choose(self, item: Item, node: Node) -> None:
        """What a scheduler would have done for a claim whose pod runs on a node."""
        data = item.data()
        spec, metadata = data["spec"], data["metadata"]
        annotations = metadata.get("annotations") or {}
        storage_class = self._classes.get(spec.get("storageClassName") or "")
        if spec.get("volumeName") or SELECTED_NODE in annotations or "deletionTimestamp" in metadata:
            return
        if storage_class is None or storage_class.data().get("volumeBindingMode") != "WaitForFirstConsumer":
            return
        volume = best_volume([one for one in self._volumes.values() if _reaches(one.data(), node)], data)
        if volume is not None:
            reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": item.namespace}
            reference |= {"name": item.name, "uid": item.uid}
            version = {"resourceVersion": str(volume.resource_version)}
            if not volume.data()["spec"].get("claimRef"):
                await self.context.patch(volume, {"metadata": version, "spec": {"claimRef": reference}})
        elif storage_class.data().get("provisioner") != _NO_PROVISIONER:
            mark = {"uid": item.uid, "annotations": {SELECTED_NODE: node.name}}
            await self.context.patch(item, {"metadata": mark})


def _claims_of(pod: Pod) -> list[tuple[Data | None, str]]:
    """The keys of the claims that a pod uses, with the template of those that belong to it."""
    found: list[tuple[Data | None, str]] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            if name:
                found.append((None, f"{pod.namespace}/{name}"))
        elif volume.ephemeral is not None:
            template: Any = volume.ephemeral.volume_claim_template or {}
            found.append((template, f"{pod.namespace}/{pod.name}-{volume.name}"))
    return found


def _reaches(volume: Data, node: Node) -> bool:
    """Whether a volume's node affinity lets a node use it."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if not required:
        return True
    try:
        matcher = NodeSelectorMatcher.compile(from_builtins(required, NodeSelector))
    except (DecodeError, SelectorError):
        return False
    return matcher.matches(node.labels, node.name)
