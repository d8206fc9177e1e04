"""Elastic quotas: what a namespace is guaranteed, what it may have at most, and what its pods have.

Given as an argument, in the fields of scheduler-plugins' ElasticQuota; without ``max`` there is no limit::

    quotas:
      team-a: {min: {cpu: 4}, max: {cpu: 6}}
      team-b: {min: {cpu: 4}, max: {cpu: 6}}

Amounts are mappings of resource names to whole numbers; only resources that a quota names are counted.
"""

from kubesched.api.quantity import QuantityError
from kubesched.api.requests import Resources


def plus(first, second):
    return {name: first.get(name, 0) + second.get(name, 0) for name in first.keys() | second.keys()}


def minus(first, second):
    return {name: first.get(name, 0) - second.get(name, 0) for name in first.keys() | second.keys()}


class Quota:
    """One namespace's quota. ``pods`` are the amounts of its pods with a node, by UID, ``used`` their sum."""

    def __init__(self, namespace, least, most):
        self.namespace = namespace
        self.min = least
        self.max = most
        self.pods = {}
        self.used = {}

    def put(self, uid, amounts):
        self.remove(uid)
        self.pods[uid] = amounts
        self.used = plus(self.used, amounts)

    def remove(self, uid):
        amounts = self.pods.pop(uid, None)
        if amounts is not None:
            self.used = minus(self.used, amounts)

    def is_over_min(self, used):
        """Return True if amounts are more than what is guaranteed: some of them are borrowed."""
        return any(amount > self.min.get(name, 0) for name, amount in used.items())


class Quotas:
    """All quotas, by namespace."""

    def __init__(self, given):
        """Raises ValueError: naming the namespace and the field."""
        if not isinstance(given, dict) or not given:
            raise ValueError(f"quotas: {given!r}; expected namespaces, each with min and max")
        self._quotas = {}
        for namespace, quota in given.items():
            where = f"quotas.{namespace}"
            if not isinstance(quota, dict) or quota.keys() - {"min", "max"}:
                raise ValueError(f"{where}: {quota!r}; expected min and max")
            least, most = (self._amounts(f"{where}.{name}", quota.get(name) or {}) for name in ("min", "max"))
            for name in least.keys() & most.keys():
                if least[name] > most[name]:
                    raise ValueError(f"{where}: min is more than max for {name}; expected less, or as much")
            self._quotas[namespace] = Quota(namespace, least, most)
        self.names = frozenset(name for quota in self for name in (*quota.min, *quota.max))
        #: What all namespaces are guaranteed together.
        self.min = {}
        for quota in self:
            self.min = plus(self.min, quota.min)

    def _amounts(self, where, given):
        try:
            resources = Resources.from_list(given)
        except (QuantityError, AttributeError, TypeError) as error:
            raise ValueError(f"{where}: {error}; expected amounts by resource, such as {{cpu: 4}}") from None
        return {name: resources.get(name) for name in given}

    def __iter__(self):
        return iter(self._quotas.values())

    def of(self, pod):
        """The quota that a pod counts for, or None."""
        return self._quotas.get(pod.metadata.namespace)

    def amounts(self, pod):
        """Return what a pod (PodInfo) requests of the resources that quotas name."""
        return {name: pod.fit_requests.get(name) for name in self.names}

    def total_used(self):
        total = {}
        for quota in self:
            total = plus(total, quota.used)
        return total
