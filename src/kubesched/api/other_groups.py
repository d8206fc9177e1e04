"""Pod groups of other projects, as the plugin PodGroupMigration reads them.

Sources: the documentation of the coscheduling plugin of scheduler-plugins (``scheduling.x-k8s.io/v1alpha1``), and of
Volcano (``scheduling.volcano.sh/v1beta1``). Both kinds have the field ``minMember``.
"""

from __future__ import annotations

from typing import Any

from .structs import Int32, Struct
from .types import ObjectMeta

__all__ = ["OtherPodGroup", "OtherPodGroupSpec"]


class OtherPodGroupSpec(Struct, frozen=True):
    """Spec of a PodGroup of either kind. Of all fields but ``min_member`` only their presence counts."""

    min_member: Int32 = 0
    min_resources: Any = None
    #: Coscheduling only.
    schedule_timeout_seconds: Any = None
    # Volcano only.
    queue: Any = None
    priority_class_name: Any = None
    min_task_member: Any = None
    network_topology: Any = None
    sub_group_policy: Any = None


class OtherPodGroup(Struct, frozen=True):
    """PodGroup of the coscheduling plugin, or of Volcano."""

    metadata: ObjectMeta = ObjectMeta()
    spec: OtherPodGroupSpec = OtherPodGroupSpec()
