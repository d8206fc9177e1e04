"""Trial: pods placed by the scheduler's own cycle over a cluster that stands still, and taken back.

Each pod passes admission, PreFilter, Filter, Score, the choice, Reserve and Permit, as in a run; the next pod sees it on
its node. Only the queue and the binding are left out, which do not decide. A pod about which they do decide is refused
(:class:`NeedsRunError`), and :mod:`.whole_run` places it instead: one with claims of volumes or devices, with a plugin
that waits or binds, with an extender, of a group, or in a namespace with a quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from kubesched.api.kinds import NAMESPACES, PODS, RESOURCE_QUOTAS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.cluster.files import Manifest
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.gated_fields import pod_view
from kubesched.scheduler.framework.status import Code
from kubesched.scheduler.nodes.podinfo import PodInfo

from ..embedded import Embedded
from .placement import Placing

__all__ = ["NeedsRunError", "RefusedPodError", "Trial", "TriedPod", "admitted"]

_BINDER = "DefaultBinder"


class NeedsRunError(Exception):
    """Pod about which more than the scheduling cycle decides. The text says what."""


class RefusedPodError(Exception):
    """Pod that the cluster's admission refuses. The text says why."""


def admitted(trial: Trial, asked: Manifest) -> Pod:
    """Return a new pod as the cluster's admission leaves it.

    Raises:
        NeedsRunError: when a quota has to be charged.
        RefusedPodError: when admission refuses the pod.
    """
    store = trial.embedded.store
    if any(True for _ in store.table(RESOURCE_QUOTAS).items(asked.namespace)):
        raise NeedsRunError(f"namespace {asked.namespace} has a ResourceQuota")
    if ("", asked.namespace) not in store.table(NAMESPACES).objects:
        raise RefusedPodError(f"namespace {asked.namespace} does not exist")
    try:
        pod: Pod = store.create(PODS, asked.namespace, asked.data, dry_run=True).typed
    except ApiError as error:
        raise RefusedPodError(str(error)) from None
    return pod


class TriedPod:
    """Kind of pod in a trial, from which each copy differs by name and UID only."""

    def __init__(self, trial: Trial, pod: Pod, *, lenient: bool = False) -> None:
        """``pod`` is an admitted pod. ``lenient``: it will not be placed but by :meth:`Trial.fit`, so that claims do
        not matter.

        Raises:
            NeedsRunError, RefusedPodError: see :mod:`.trial`.
        """
        self.pod = trial.view(pod) if trial.view is not None else pod
        self.info = PodInfo(self.pod)
        self.info.derive_all()
        #: True if it uses claims of volumes or devices, which are found by the pod's own name.
        self.uses_claims = bool(self.pod.spec.resource_claims) or any(
            one.persistent_volume_claim is not None or one.ephemeral is not None for one in self.info.storage
        )
        if self.uses_claims and not lenient:
            raise NeedsRunError("the pod uses claims")
        self._checked = False
        self.placing = trial.placing_of(self.pod, lenient=lenient)
        plugins = self.placing.framework.pre_enqueue_plugins.values()
        #: True if a PreEnqueue plugin holds such pods back, as for scheduling gates.
        self.is_held = any(plugin(self.info) is not None for plugin in plugins)

    def copy(self, name: str) -> PodInfo:
        """Return a copy of the pod, whose UID is its name."""
        metadata = msgspec.structs.replace(self.pod.metadata, name=name, uid=f"{self.pod.namespace}/{name}")
        return self.info.alike(Pod(metadata=metadata, spec=self.pod.spec, status=self.pod.status))

    def check(self, pod: PodInfo, decision: Decision) -> None:
        """Check once, on a node that was chosen, that nothing after the choice decides.

        Raises:
            NeedsRunError: see :mod:`.trial`.
        """
        if self._checked:
            return
        self._checked = True
        framework = self.placing.framework
        concerned = framework.concerned(decision.state.absent)
        for plugin in (*concerned.permit, *concerned.bind):
            if plugin.name != _BINDER:
                raise NeedsRunError(f"plugin {plugin.name} decides after the choice of a node")
        status = framework.binding.pre_bind_pre_flight(decision.state, pod, decision.node.name)
        if status is None or status.code is not Code.SKIP:
            raise NeedsRunError("a plugin has to prepare the binding")


class Trial:
    """Pods placed for a trial, over the cluster of ``embedded``, in which nothing may move meanwhile."""

    def __init__(self, embedded: Embedded, gates: FeatureGates) -> None:
        self.embedded = embedded
        self.view = pod_view(gates)
        self._placings: dict[str, Placing] = {}
        self._placed: list[tuple[TriedPod, PodInfo, Decision | None]] = []

    def placing_of(self, pod: Pod, *, lenient: bool = False) -> Placing:
        """Return the placement by the pod's profile. ``lenient``: nothing will be placed.

        Raises:
            NeedsRunError: see :mod:`.trial`.
        """
        scheduler = self.embedded.scheduler
        name = pod.spec.scheduler_name
        if scheduler.extenders and not lenient:
            raise NeedsRunError("the configuration has extenders")
        if pod.spec.scheduling_group is not None and not lenient:
            raise NeedsRunError("the pod belongs to a group")
        if name not in scheduler.profiles:
            known = ", ".join(scheduler.profiles)
            raise RefusedPodError(
                f'no profile is named "{name}" (there is {known}); another scheduler would take the pod'
            )
        if name not in self._placings:
            search, framework = scheduler.profiles[name].search, scheduler.frameworks[name]
            self._placings[name] = Placing(scheduler.cache, framework, search)
        return self._placings[name]

    @contextmanager
    def same_ties(self) -> Iterator[None]:
        """Context that begins with the ties of a run at this moment; at its end they are as before."""
        with ExitStack() as stack:
            for profile in self.embedded.scheduler.profiles.values():
                stack.enter_context(profile.search.aside())
            yield

    @contextmanager
    def begun(self, *, last: bool = False) -> Iterator[None]:
        """Context of the trial; at its end all pods are taken back, and ties are broken as if nothing had happened.

        After the ``last`` trial of a cluster that is then forgotten, they are left.
        """
        with self.same_ties():
            try:
                yield
            finally:
                if not last:
                    self.take_back()

    def place(self, tried: TriedPod, name: str) -> str | None:
        """Place a copy of a pod; return its node, or None when it fits nowhere.

        Raises:
            NeedsRunError: see :mod:`.trial`.
            PluginFailedError: when a plugin fails.
        """
        pod = tried.copy(name)
        decision = tried.placing.find(pod)
        if isinstance(decision, Rejection):
            return None
        if not tried.placing.keep(pod, decision):
            return None
        self._placed.append((tried, pod, decision))
        tried.check(pod, decision)
        return decision.node.name

    def fit(self, tried: TriedPod, pod: PodInfo) -> str | None:
        """Put a pod on the node that the search chooses, and return the node; None when the pod fits nowhere.

        Reserve is not asked, so that pods with claims can be tried too: later pods see this one, but not its claims.

        Raises:
            PluginFailedError: when a plugin fails.
        """
        decision = tried.placing.find(pod)
        if isinstance(decision, Rejection):
            return None
        self.put(tried, pod, decision.node.name)
        return decision.node.name

    def put(self, tried: TriedPod, pod: PodInfo, node: str) -> None:
        """Put a pod on a node, without asking anybody."""
        assumed = pod.on_node(node)
        tried.placing.cache.assume_pod(assumed)
        self._placed.append((tried, assumed, None))

    def take_back(self, to: int = 0) -> None:
        """Take pods back, the last first, until ``to`` are left."""
        while len(self._placed) > to:
            tried, pod, decision = self._placed.pop()
            if decision is None:
                tried.placing.cache.forget_pod(pod.pod)
            else:
                tried.placing.take_back(pod, decision)

    def __len__(self) -> int:
        return len(self._placed)
