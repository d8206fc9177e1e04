"""On which nodes the pods of application groups are: those bound, and those the scheduler has just placed."""

from .groups import of_pod


class Places:
    """One for all plugins: ``nodes`` is by (namespace, group, workload): node name by pod UID."""

    def __init__(self):
        self.nodes = {}

    def put(self, pod, node_name):
        key = of_pod(pod)
        if key is not None:
            self.nodes.setdefault(key, {})[pod.metadata.uid] = node_name

    def remove(self, pod):
        key = of_pod(pod)
        pods = self.nodes.get(key)
        if pods is not None:
            pods.pop(pod.metadata.uid, None)
            if not pods:
                del self.nodes[key]

    def on_add(self, pod, is_initial):
        if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
            self.put(pod, pod.spec.node_name)

    def on_update(self, old, new):
        if new.status.phase in ("Succeeded", "Failed"):
            self.remove(new)
        else:
            self.on_add(new, False)

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        if pod is not None:
            self.remove(pod)
