"""The store against a plain model, and a watcher that must end up with what the store holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster_world import FakeClock, a_pod, a_store
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubesched.api.kinds import PODS
from kubesched.api.wire import MERGE_PATCH, ApiError, Item, WatchEvent
from kubesched.cluster.store import Store

NAMES = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.sampled_from(["x", "y", "z"])


def refusal(call: Callable[[], object]) -> ApiError | None:
    """Return the error a call was refused with, None when it went through."""
    try:
        call()
    except ApiError as error:
        return error
    return None


class Replica:
    """A client's copy, kept by list and watch; it relists after 410."""

    def __init__(self, store: Store, **selectors: Any) -> None:
        self.store, self.selectors = store, selectors
        self.relists = -1
        self.version = 0
        self.relist()

    def relist(self) -> None:
        page = self.store.list(PODS, **self.selectors)
        self.items: dict[str, Item] = {item.key: item for item in page.items}
        self.relists += 1
        self.watch = self.store.watch(PODS, resource_version=page.resource_version, **self.selectors)
        self.version = int(page.resource_version)

    def catch_up(self) -> None:
        events: list[WatchEvent] = []
        error = refusal(lambda: events.extend(self.watch.drain()))
        if error is not None:
            assert error.code == 410
            self.relist()
            return
        for event in events:
            assert event.item.resource_version > self.version
            self.version = event.item.resource_version
            if event.type == "ADDED":
                assert event.item.key not in self.items
                self.items[event.item.key] = event.item
            elif event.type == "MODIFIED":
                assert event.item.key in self.items
                self.items[event.item.key] = event.item
            else:
                assert event.type == "DELETED"
                del self.items[event.item.key]


class StoreMachine(RuleBasedStateMachine):
    """Labels, node and deletion of four pods, as the store and as a dict see them."""

    def __init__(self) -> None:
        super().__init__()
        self.store = a_store(FakeClock(), history=4, backlog=6)
        self.model: dict[str, dict[str, Any]] = {}
        self.version = self.store.resource_version
        self.everything = Replica(self.store)
        self.labelled = Replica(self.store, label_selector="l=x")
        self.unbound = Replica(self.store, field_selector="spec.nodeName=")

    def uid_of(self, name: str) -> str:
        return self.store.get(PODS, "default", name).uid

    def wrote(self) -> None:
        assert self.store.resource_version > self.version
        self.version = self.store.resource_version

    @rule(name=NAMES, label=VALUES)
    def create(self, name: str, label: str) -> None:
        error = refusal(lambda: self.store.create(PODS, "default", a_pod(name, labels={"l": label})))
        if error is not None:
            assert (error.reason, name in self.model) == ("AlreadyExists", True)
            return
        assert name not in self.model
        self.model[name] = {"label": label, "node": None, "uid": self.uid_of(name), "deleting": False}
        self.wrote()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), label=VALUES, how=st.sampled_from(["update", "strategic", "merge", "stale"]))
    def relabel(self, data: Any, label: str, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[name]
        if how == "strategic":
            self.store.patch(PODS, "default", name, {"metadata": {"labels": {"l": label}}})
        elif how == "merge":
            self.store.patch(PODS, "default", name, {"metadata": {"labels": {"l": label}}}, patch_type=MERGE_PATCH)
        else:
            obj = self.store.get(PODS, "default", name).data()
            obj["metadata"]["labels"]["l"] = label
            if how == "stale":
                obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) - 1)
                error = refusal(lambda: self.store.update(PODS, "default", name, obj))
                assert error is not None
                assert error.reason == "Conflict"
                return
            self.store.update(PODS, "default", name, obj)
        if known["label"] != label:
            known["label"] = label
            self.wrote()
        assert self.store.resource_version == self.version, "an update that changes nothing must not write"

    @precondition(lambda self: self.model)
    @rule(data=st.data(), node=VALUES)
    def bind(self, data: Any, node: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[name]
        error = refusal(lambda: self.store.bind("default", name, known["uid"], node))
        if error is not None:
            assert error.code == 409
            assert known["node"] is not None or known["deleting"]
            return
        assert known["node"] is None
        known["node"] = node
        self.wrote()

    @precondition(lambda self: self.model)
    @rule(data=st.data(), grace=st.sampled_from([None, 0]))
    def delete(self, data: Any, grace: int | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        known = self.model[name]
        self.store.delete(PODS, "default", name, grace_period_seconds=grace)
        if known["node"] is None or grace == 0:
            del self.model[name]
            self.wrote()
        elif not known["deleting"]:
            known["deleting"] = True
            self.wrote()

    @rule(which=st.sampled_from(["everything", "labelled", "unbound"]))
    def catch_up(self, which: str) -> None:
        replica: Replica = getattr(self, which)
        replica.catch_up()
        shown = {item.key: item for item in self.store.list(PODS, **replica.selectors).items}
        assert replica.items == shown

    @rule()
    def compact(self) -> None:
        self.store.compact(PODS)

    @rule(limit=st.integers(1, 3))
    def pages_agree_with_the_whole_list(self, limit: int) -> None:
        page, names = self.store.list(PODS, limit=limit), []
        names += [item.name for item in page.items]
        while page.continue_token:
            page = self.store.list(PODS, limit=limit, continue_token=page.continue_token)
            names += [item.name for item in page.items]
        assert names == sorted(self.model)

    @invariant()
    def the_store_is_the_model(self) -> None:
        assert self.store.resource_version == self.version
        found = {}
        for item in self.store.list(PODS).items:
            data = item.data()
            assert data["metadata"]["resourceVersion"] == str(item.resource_version)
            found[item.name] = {
                "label": data["metadata"]["labels"]["l"],
                "node": data["spec"].get("nodeName"),
                "uid": item.uid,
                "deleting": "deletionTimestamp" in data["metadata"],
            }
        assert found == self.model


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
