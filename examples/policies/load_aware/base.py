"""Base of the policies: the provider, and the pods that were placed since a node's load was reported."""

from kubesched.scheduler.framework import Plugin, Question

from .loads import LoadColumns, provider_class


class LoadQuestion(Question):
    """Question of where a pod would meet the least load. A policy's question adds ``scores``."""

    def __init__(self, policy, pod, nodes):
        self.policy = policy
        self.nodes = nodes
        self.key = self.expected = policy.expected(pod)


class LoadAware(Plugin):
    """Base of the policies. A policy adds its question (``asks``), and ``expected`` if pods use other than their requests.

    Argument: ``provider``.
    """

    def __init__(self, args, handle):
        super().__init__(args or {}, handle)
        self.loads = LoadColumns()
        self.provider = provider_class(self.args.get("provider", "annotations"))(handle, self.report)
        handle.watch("pods", self)

    def number(self, name, default, least):
        """An argument that is a number (a text that is one will do, as in Kubernetes).

        Raises:
            ValueError: naming the argument.
        """
        try:
            value = float(self.args.get(name, default))
        except (TypeError, ValueError):
            value = float("nan")
        if not value >= least:
            raise ValueError(f"{name}: {self.args[name]!r}; expected a number of {least:g} or more")
        return value

    def expected(self, pod):
        """(milli-CPU, bytes of memory) that the pod is expected to use."""
        return pod.fit_requests.milli_cpu, pod.fit_requests.memory

    def ask(self, pod, nodes):
        return self.asks(self, pod, nodes)

    def report(self, node_name, load):
        self.loads.report(node_name, load)
        self.handle.node_changed(node_name)

    def reserve(self, state, pod, node_name):
        self.loads.place(pod.uid, node_name, *self.expected(pod))

    def unreserve(self, state, pod, node_name):
        self.loads.remove(pod.uid)

    def on_add(self, pod, is_initial):
        """Pods that others placed are part of the next report."""

    def on_update(self, old, new):
        if new.status.phase in ("Succeeded", "Failed"):
            self.on_delete(new)

    def on_delete(self, pod):
        pod = getattr(pod, "obj", pod)
        node_name = self.loads.remove(pod.metadata.uid) if pod is not None else None
        if node_name:
            self.handle.node_changed(node_name)
