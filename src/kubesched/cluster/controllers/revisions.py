"""ControllerRevisions: former and current templates of a StatefulSet or DaemonSet, to tell old pods from new ones.

Stored as upstream stores them (``data.spec.template`` with ``$patch: replace``), so that an imported cluster's
revisions are recognised. Caller: :mod:`.stateful_sets`, :mod:`.daemon_sets`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubesched.api.equality import same_json
from kubesched.api.kinds import REVISIONS
from kubesched.api.wire import Item

from .context import BY_OWNER, Context, Data, data_of, spec_of
from .pods import owner_reference, template_hash

__all__ = ["REVISION_LABEL", "Revisions", "revision_template"]

REVISION_LABEL: Final = "controller-revision-hash"


def revision_template(revision: Item) -> Data:
    """Return the pod template in a revision."""
    template = ((data_of(revision).get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def _clean(template: Any) -> Data:
    return {name: value for name, value in (template or {}).items() if name != "$patch" and value}


class Revisions:
    """Revisions of the objects of one controller."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._cache = context.owned_cache(REVISIONS)

    def of(self, owner: Item) -> list[Item]:
        """Return all revisions of an object, oldest first."""
        return sorted(self._cache.indexed(BY_OWNER, owner.uid), key=lambda item: data_of(item).get("revision", 0))

    async def current(self, owner: Item, *, assumed: str = "") -> Item:
        """Return the revision of the present template. It is created, or renumbered as the newest, if necessary.

        ``assumed`` is the name of the revision if there are no revisions at all: an import may lack them.
        """
        template = spec_of(owner).get("template") or {}
        known = self.of(owner)
        number = data_of(known[-1]).get("revision", 0) + 1 if known else 1
        for item in reversed(known):
            if same_json(_clean(revision_template(item)), _clean(template)):
                return item if item is known[-1] else await self._context.patch(item, {"revision": number})
        name, collisions = "" if known else assumed, 0
        while not name or self._cache.get(f"{owner.namespace}/{name}") is not None:
            name = f"{owner.name}-{template_hash(template, collisions)}"
            collisions += 1
        labels = {**((template.get("metadata") or {}).get("labels") or {}), REVISION_LABEL: self.label(owner, name)}
        data = {"spec": {"template": {"$patch": "replace", **template}}}
        body: Data = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(owner)]},
            "data": msgspec.json.decode(msgspec.json.encode(data, order="sorted")),  # as Go writes maps
            "revision": number,
        }
        return await self._context.create(REVISIONS, owner.namespace, body)

    @staticmethod
    def label(owner: Item, name: str) -> str:
        """Return the label of a revision's pods: the whole name for a StatefulSet, only the hash for a DaemonSet."""
        return name if owner.kind.kind == "StatefulSet" else name.removeprefix(f"{owner.name}-")

    async def forget_old(self, owner: Item, *current: Item) -> None:
        """Delete revisions beyond the history limit that are not current and that no pod has."""
        used = {self.label(owner, item.name) for item in current}
        used |= {pod.typed.metadata.labels.get(REVISION_LABEL, "") for pod in self._context.owned_pods(owner.uid)}
        unused = [item for item in self.of(owner) if self.label(owner, item.name) not in used]
        limit = int(spec_of(owner).get("revisionHistoryLimit", 10))
        for item in unused[: max(0, len(unused) - limit)]:
            await self._context.delete(item)
