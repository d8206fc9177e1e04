"""PreBind of VolumeBinding: what is written, what is waited for, and how the wait ends. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from binding_kit import DONE, SELECTED, Binding, claim, newer, on, storage_class, volume
from limits_kit import a_csi_node, claims, with_volumes
from msgspec.structs import replace

from builders import a_node
from kubesched.api.types import Node
from kubesched.api.wire import ApiError
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config.args import VolumeBindingArgs
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.framework.waiting import PodInPreBind
from kubesched.scheduler.nodes.podinfo import PodInfo

ZONE = "topology.kubernetes.io/zone"
POD = with_volumes("p", *claims("c"))
BOTH = with_volumes("p", *claims("c", "d"))


class Attempt:
    """One pod between Reserve and the end of PreBind, and the cluster around it."""

    def __init__(self, *, pod: Any = POD, timeout: int = 600, affinity: Any = None, **more: Any) -> None:
        objects = [
            storage_class(),
            storage_class("fast", "csi"),
            volume("v", affinity=affinity, **more),
            claim("c"),
            claim("d", storage="fast"),
        ]
        node = a_node("a", labels={ZONE: "a"})
        self.cluster = Binding([node], objects, args=VolumeBindingArgs(bind_timeout_seconds=timeout))
        self.cluster.objects.put("nodes", "a", node)
        self.state, self.pod = self.cluster.reserved(pod, "a")

    def start(self) -> asyncio.Task[Status | None]:
        """PreBind in a task, as the binding cycle runs it."""
        task = asyncio.ensure_future(self.cluster.pre_bind(self.state, self.pod, "a"))
        self.cluster.pods_in_pre_bind.add(self.pod.uid, PodInPreBind(task))
        return task

    async def written(self) -> None:
        """Let the writes happen."""
        for _ in range(20):
            await asyncio.sleep(0)

    def get(self, plural: str, key: str) -> Any:
        return self.cluster.objects.informed(plural)[key]

    def put(self, plural: str, obj: Any) -> None:
        self.cluster.objects.put(plural, obj.key if plural != "nodes" else obj.name, obj)

    def show(self) -> None:
        self.cluster.client.show()

    def bind_claim(self, name: str, to: str) -> None:
        """Bind a claim as the PV controller does in the end."""
        found = self.get("persistentvolumeclaims", f"ns/{name}")
        annotations = {**found.metadata.annotations, **DONE}
        metadata = replace(found.metadata, annotations=annotations)
        bound = replace(found, metadata=metadata, spec=replace(found.spec, volume_name=to))
        self.put("persistentvolumeclaims", newer(bound))

    def check_clean(self) -> None:
        assert self.cluster.problems() == []
        assert self.cluster.state.cache._waiting == {}


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    run_virtual(main())


def test_a_volume_is_written_and_its_claim_waited_for() -> None:
    async def scenario() -> None:
        attempt = Attempt()
        running = attempt.start()
        await attempt.written()
        [(plural, wrote)] = attempt.cluster.client.written
        assert (plural, wrote.name, wrote.spec.claim_ref.uid) == ("persistentvolumes", "v", "c")
        assert not running.done()
        attempt.show()
        await attempt.written()
        assert not running.done(), "the claim is not bound yet"
        assert attempt.cluster.state.cache.volumes.assumed() == {}
        attempt.bind_claim("c", "v")
        before = asyncio.get_running_loop().time()
        assert await running is None
        assert asyncio.get_running_loop().time() == before, "woken by the event, not by a timer"
        assert attempt.cluster.state.reservations == {}
        attempt.check_clean()

    play(scenario)


def test_a_claim_is_written_and_its_volume_waited_for() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=with_volumes("p", *claims("d")))
        running = attempt.start()
        await attempt.written()
        [(plural, wrote)] = attempt.cluster.client.written
        assert (plural, wrote.metadata.annotations) == ("persistentvolumeclaims", {SELECTED: "a"})
        attempt.show()
        attempt.bind_claim("d", "made")
        await attempt.written()
        assert not running.done(), "its volume has not been seen yet"
        attempt.cluster.put(volume("made", storage="fast", claim="d", affinity=on(ZONE, "a")))
        assert await running is None
        attempt.check_clean()

    play(scenario)


def test_volumes_are_written_before_claims_and_all_are_waited_for() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        running = attempt.start()
        await attempt.written()
        assert [plural for plural, _ in attempt.cluster.client.written] == [
            "persistentvolumes",
            "persistentvolumeclaims",
        ]
        attempt.show()
        attempt.bind_claim("c", "v")
        await attempt.written()
        assert not running.done()
        attempt.cluster.put(volume("made", storage="fast", claim="d"))
        attempt.bind_claim("d", "made")
        assert await running is None
        attempt.check_clean()

    play(scenario)


def failure(status: Status | None) -> str:
    assert status is not None
    assert status.as_error() is not None
    return status.message()


def test_a_write_that_is_refused_gives_up_what_was_not_written_and_keeps_what_was() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        cache = attempt.cluster.state.cache
        attempt.cluster.client.refuse["d"] = OSError("connection refused")
        assert failure(await attempt.start()) == "binding volumes: connection refused"
        assert list(cache.volumes.assumed()) == ["v"], "it was written: another pod must not be given it"
        assert cache.claims.assumed() == {}
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        assert list(cache.volumes.assumed()) == ["v"]
        assert attempt.cluster.problems() == []
        attempt.show()
        assert cache.volumes.assumed() == {}
        assert attempt.cluster.metrics.volume_scheduling_stage_error_total.labels("bind").value == 1
        attempt.check_clean()

    play(scenario)


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), ApiError(504, "Timeout", "no answer")])
def test_a_write_whose_answer_was_lost_counts_if_it_was_carried_out(error: Exception) -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        client = attempt.cluster.client
        client.lost = {"v": error, "d": error}
        running = attempt.start()
        await attempt.written()
        assert [plural for plural, _ in client.written] == ["persistentvolumes", "persistentvolumeclaims"]
        attempt.show()
        attempt.bind_claim("c", "v")
        attempt.cluster.put(volume("made", storage="fast", claim="d"))
        attempt.bind_claim("d", "made")
        assert await running is None
        attempt.check_clean()

    play(scenario)


def test_a_pod_that_is_preempted_while_it_writes_ends_after_its_last_write() -> None:
    """Otherwise one of its volumes would be on this node, and the next attempt, before the watch shows it, elsewhere."""

    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        client = attempt.cluster.client
        client.seconds = 5.0
        running = attempt.start()
        entry = attempt.cluster.pods_in_pre_bind.get(attempt.pod.uid)
        assert entry is not None
        await asyncio.sleep(1)
        assert entry.cancel("preempted")
        assert failure(await entry.result()) == "preempted"
        assert running.cancelled()
        assert [plural for plural, _ in client.written] == ["persistentvolumes", "persistentvolumeclaims"]
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        cache = attempt.cluster.state.cache
        assert (list(cache.volumes.assumed()), list(cache.claims.assumed())) == (["v"], ["ns/d"])
        assert attempt.cluster.problems() == []

    play(scenario)


def test_a_volume_that_was_bound_elsewhere_in_the_meantime_is_a_conflict() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        taken = attempt.get("persistentvolumes", "v")
        reference = replace(attempt.cluster.state.cache.volumes.find("v").spec.claim_ref, name="other", uid="other")  # type: ignore[union-attr, type-var]
        attempt.put("persistentvolumes", newer(replace(taken, spec=replace(taken.spec, claim_ref=reference))))
        assert failure(await attempt.start()) == "binding volumes: v has been modified"
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        assert attempt.cluster.state.cache.claims.assumed() == {}
        assert attempt.cluster.client.written == []
        attempt.check_clean()

    play(scenario)


@pytest.mark.parametrize("timeout", [0, 3])
def test_the_wait_ends_after_the_timeout_and_written_objects_stay(timeout: int) -> None:
    async def scenario() -> None:
        attempt = Attempt(timeout=timeout)
        loop = asyncio.get_running_loop()
        start, running = loop.time(), attempt.start()
        await attempt.written()
        attempt.show()
        assert failure(await running) == "binding volumes: context deadline exceeded"
        assert loop.time() - start == timeout
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        # The next attempt finds the volume that names the claim.
        assert attempt.cluster.chosen(POD, "a") == ({"c": "v"}, [])
        attempt.check_clean()

    play(scenario)


def remove_node(attempt: Attempt) -> None:
    attempt.cluster.objects.remove("nodes", "a")


def relabel_node(attempt: Attempt) -> None:
    node: Node = attempt.get("nodes", "a")
    attempt.put("nodes", replace(node, metadata=replace(node.metadata, labels={ZONE: "b"})))


def remove_pod(attempt: Attempt) -> None:
    attempt.cluster.gone.add("p")
    attempt.cluster.pods_in_pre_bind.removed("p")


def reset_reference(attempt: Attempt) -> None:
    found = attempt.get("persistentvolumes", "v")
    attempt.put("persistentvolumes", newer(replace(found, spec=replace(found.spec, claim_ref=None))))


def remove_volume(attempt: Attempt) -> None:
    attempt.cluster.objects.remove("persistentvolumes", "v")


def remove_claim(attempt: Attempt) -> None:
    attempt.cluster.objects.remove("persistentvolumeclaims", "ns/c")


def migrate(attempt: Attempt) -> None:
    attempt.cluster.put(a_csi_node("a", {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"}))


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (remove_node, 'failed to get node "a": node "a" not found'),
        (relabel_node, 'pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        (remove_pod, 'pod does not exist any more: pod "p" not found'),
        (reset_reference, 'ClaimRef got reset for pv "v"'),
        (remove_volume, 'failed to check binding: persistentvolumes "v" not found'),
        (remove_claim, 'failed to check binding: persistentvolumeclaims "ns/c" not found'),
        # The disk's zone has another name where its plugin is migrated.
        (migrate, 'pv "v" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
    ],
)
def test_the_wait_for_a_volume_ends_when_it_is_in_vain(happens: Callable[[Attempt], None], expected: str) -> None:
    async def scenario() -> None:
        attempt = Attempt(affinity=on(ZONE, "a"), awsElasticBlockStore={"volumeID": "vol-1"})
        running = attempt.start()
        await attempt.written()
        attempt.show()
        await attempt.written()
        assert not running.done()
        happens(attempt)
        start = asyncio.get_running_loop().time()
        assert failure(await running) == f"binding volumes: {expected}"
        assert asyncio.get_running_loop().time() == start
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        attempt.check_clean()

    play(scenario)


def deselect(attempt: Attempt, *, keep: dict[str, str]) -> None:
    found = attempt.get("persistentvolumeclaims", "ns/d")
    attempt.put("persistentvolumeclaims", newer(replace(found, metadata=replace(found.metadata, annotations=keep))))


def provision_elsewhere(attempt: Attempt) -> None:
    attempt.cluster.put(volume("made", storage="fast", claim="d", affinity=on(ZONE, "b")))
    attempt.bind_claim("d", "made")


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (lambda attempt: deselect(attempt, keep={}), 'selectedNode annotation reset for PVC "d"'),
        (lambda attempt: deselect(attempt, keep={"other": "x"}), 'provisioning failed for PVC "d"'),
        (lambda attempt: deselect(attempt, keep={SELECTED: "b"}), 'provisioning failed for PVC "d"'),
        (provision_elsewhere, 'pv "made" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'),
        (
            lambda attempt: attempt.cluster.objects.remove("persistentvolumeclaims", "ns/d"),
            'failed to check provisioning pvc: persistentvolumeclaims "ns/d" not found',
        ),
    ],
)
def test_the_wait_for_provisioning_ends_when_it_is_in_vain(happens: Callable[[Attempt], None], expected: str) -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=with_volumes("p", *claims("d")))
        running = attempt.start()
        await attempt.written()
        attempt.show()
        await attempt.written()
        assert not running.done()
        happens(attempt)
        assert failure(await running) == f"binding volumes: {expected}"
        attempt.cluster.binding.plugin.unreserve(attempt.state, attempt.pod, "a")
        attempt.check_clean()

    play(scenario)


def test_an_informer_that_is_behind_is_waited_for() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=with_volumes("p", *claims("d")))
        running = attempt.start()
        await attempt.written()
        # An event of the version before: without the annotation, which is no failure yet.
        attempt.put("persistentvolumeclaims", attempt.get("persistentvolumeclaims", "ns/d"))
        await attempt.written()
        assert not running.done()
        attempt.show()
        attempt.cluster.put(volume("made", storage="fast", claim="d"))
        attempt.bind_claim("d", "made")
        assert await running is None

    play(scenario)


def test_a_scheduler_that_stops_ends_the_wait() -> None:
    async def scenario() -> None:
        attempt = Attempt()
        running = attempt.start()
        await attempt.written()
        attempt.cluster.pods_in_pre_bind.stop()
        assert failure(await running) == "binding volumes: context canceled"
        attempt.show()
        # A wait that begins afterwards ends at once, too.
        late = Attempt()
        late.cluster.pods_in_pre_bind.stop()
        assert failure(await late.start()) == "binding volumes: context canceled"

    play(scenario)


def test_after_a_restart_what_was_written_is_taken_up_again() -> None:
    async def scenario() -> None:
        attempt = Attempt(pod=BOTH)
        running = attempt.start()
        await attempt.written()
        attempt.show()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        # A scheduler that knows nothing of it: the volume names the claim, the claim its node.
        again = Binding([a_node("a", labels={ZONE: "a"}), a_node("b")], [storage_class(), storage_class("fast", "csi")])
        for plural in ("persistentvolumes", "persistentvolumeclaims"):
            for key, obj in attempt.cluster.objects.informed(plural).items():
                again.objects.put(plural, key, obj)
        again.put(volume("smaller", "1Gi"))
        assert again.chosen(BOTH, "a") == ({"c": "v"}, ["d"])
        assert set(again.verdicts(BOTH)) == {"a", "b"}
        assert again.verdicts(BOTH)["b"] is not None
        state, pod = again.reserved(BOTH, "a")
        assert again.state.cache.volumes.assumed() == {}
        again.objects.put("nodes", "a", a_node("a", labels={ZONE: "a"}))
        task = asyncio.ensure_future(again.pre_bind(state, pod, "a"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert [obj.metadata.name for _, obj in again.client.written] == ["v", "d"]
        task.cancel()

    play(scenario)


def test_pre_bind_without_a_reservation_has_nothing_to_do() -> None:
    async def scenario() -> None:
        attempt = Attempt()
        state, pod = attempt.cluster.filtered(POD)
        assert await attempt.cluster.pre_bind(state, pod, "a") is None
        assert isinstance(pod, PodInfo)

    play(scenario)
