"""Objects whose owners are not in the input, such as pods of a dump without ReplicaSets.

The garbage collector of a cluster deletes objects without an owner. Objects that came without theirs are marked, and
stay. Callers: imports of dumps, simulations with controllers, ``kubesched up``; read by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kubesched.api.kinds import kind_of

from ..controllers import ABSENT_OWNER, COLLECTED
from .manifests import Manifest

__all__ = ["absent_owners_remark", "with_marks"]

#: Most owners named in a remark.
_MOST: Final = 3


def _owners(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = (data.get("metadata") or {}).get("ownerReferences")
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []


def with_marks(objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects; those that a cluster would collect, as none of their owners is there, bear an annotation."""
    present = {item.data["metadata"].get("uid") for item in objects}
    return [_marked(item) if _is_alone(item, present) else item for item in objects]


def _is_alone(item: Manifest, present: set[Any]) -> bool:
    owners = _owners(item.data) if item.kind in COLLECTED else []
    if not owners:
        return False
    return not any(
        one.get("uid") in present or kind_of(str(one.get("apiVersion")), str(one.get("kind"))) is None for one in owners
    )


def _marked(item: Manifest) -> Manifest:
    metadata = item.data["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ABSENT_OWNER: "true"}
    return Manifest(item.kind, {**item.data, "metadata": {**metadata, "annotations": annotations}}, item.source)


def absent_owners_remark(objects: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a remark about the marked objects among some, as plain data; none if no object is marked."""
    count, names = 0, dict[str, None]()
    for data in objects:
        if ((data.get("metadata") or {}).get("annotations") or {}).get(ABSENT_OWNER) == "true":
            count += 1
            names.update(dict.fromkeys(f"{one.get('kind')} {one.get('name')}" for one in _owners(data)))
    if not count:
        return []
    more = f", and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    who = f"{count:,} pods are" if count != 1 else "1 pod is"
    text = f"{who} owned by objects that are not in the input ({', '.join([*names][:_MOST])}{more}): they are kept, and nothing"
    return [f"{text} replaces or scales them; export the owners, such as replicasets and jobs, as well"]
