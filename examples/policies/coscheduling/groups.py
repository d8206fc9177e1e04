"""Groups of pods, by two labels on each of their pods::

pod-group.scheduling.sigs.k8s.io/name: training
pod-group.scheduling.sigs.k8s.io/min-available: "4"
"""

NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"


def group_of(pod):
    """(namespace, name) of a pod's group; None when it has none."""
    name = pod.metadata.labels.get(NAME)
    return (pod.metadata.namespace, name) if name else None


def least_of(pod):
    """Return the number of pods of its group that must run together.

    Raises:
        ValueError: when the label is no number.
    """
    text = pod.metadata.labels.get(MIN_AVAILABLE, "1")
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"pod {pod.metadata.name}: label {MIN_AVAILABLE}: {text!r}; expected a whole number above 0")
    return int(text)


class Group:
    """``members`` are the pods that exist and have not failed, by UID, ``placed`` the UIDs of those that have a node."""

    def __init__(self):
        self.members = {}
        self.placed = set()
        #: When its first pod was queued; None before.
        self.since = None
        #: Until when it is not tried again, unless something changes that may help; 0 when it may be.
        self.denied_until = 0.0
        #: Groups whose pods held nodes when it did not fit, and may give them up.
        self.in_the_way = frozenset()


class Groups:
    """Follows the pods of the cluster: a handler for ``handle.watch("pods", …)``."""

    def __init__(self, on_change):
        """``on_change`` is called with None, or with the group that is the cause, when capacity may have become free."""
        self._groups = {}
        self._on_change = on_change

    def __iter__(self):
        return iter(self._groups.items())

    def get(self, pod):
        """The group of a pod; None when the pod has none, or the group no pods any more."""
        return self._groups.get(group_of(pod))

    def of(self, pod):
        """The group of a pod, made if it is new; None when the pod has none."""
        key = group_of(pod)
        if key is None:
            return None
        if key not in self._groups:
            self._groups[key] = Group()
        return self._groups[key]

    def on_add(self, pod, is_initial):
        group = self.of(pod)
        if group is None:
            return
        if pod.status.phase == "Failed":
            self._leave(pod)
            return
        group.members[pod.metadata.uid] = pod
        if pod.spec.node_name:
            group.placed.add(pod.metadata.uid)

    def on_update(self, old, new):
        self.on_add(new, False)
        if new.spec.node_name and new.status.phase in ("Succeeded", "Failed"):
            self._on_change(group_of(new))

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        if pod is not None:
            self._leave(pod)
            if pod.spec.node_name:
                self._on_change(group_of(pod))

    def _leave(self, pod):
        group = self.get(pod)
        if group is not None:
            group.members.pop(pod.metadata.uid, None)
            group.placed.discard(pod.metadata.uid)
            if not group.members:
                del self._groups[group_of(pod)]
