"""The queue in slices against the plain model: what comes in between ends in the same place."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from queue_kit import ticking
from test_queue_model import QueueMachine, names, quiet

from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.queue.slices import Slices

__all__ = ["quiet"]  # a fixture


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubesched.scheduler.queue.event_moves._STEP", 1)


class SlicedMachine(QueueMachine):
    """QueueMachine whose queue lets others in after every step.

    What is compared, or depends on what a test changes, is done when nothing is under way.
    """

    @initialize(by_less=st.booleans(), maximum=st.sampled_from([10.0, 10.0, 0.0]), wild=st.booleans())
    def build(self, by_less: bool, maximum: float, wild: bool) -> None:
        super().build(by_less, maximum, wild)
        self.slices = Slices(ticking(), lambda: None)
        self.slices._watched = True
        self.queue._slices = self.queue.views._slices = self.slices

    @rule(steps=st.integers(1, 5))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.slices.busy:
                self.slices._slice(0.0)

    @rule()
    def pop(self) -> None:
        if self.slices.moving:
            assert self.queue.pop_nowait() is None
        elif not self.slices.busy:
            super().pop()

    @rule()
    def pop_in_the_end(self) -> None:
        self.slices.settle()
        super().pop()

    @rule(seconds=st.sampled_from([0.3, 0.7, 1.0, 1.0, 2.5, 31.0, 301.0]))
    def wait(self, seconds: float) -> None:
        self.slices.settle()
        super().wait(seconds)

    @rule(gate=st.sampled_from(["Gate1", "Gate2"]), name=names)
    def turn_gate(self, gate: str, name: str) -> None:
        self.slices.settle()
        super().turn_gate(gate, name)

    def give(self, record: QueuedPodInfo, refused: bool) -> None:
        if self.slices.busy:
            self.queue.add_unschedulable_if_not_present(record, 0)  # if it is refused, that is logged
        else:
            super().give(record, refused)

    @invariant()
    def same_places(self) -> None:
        if hasattr(self, "slices") and not self.slices.busy:
            super().same_places()

    def teardown(self) -> None:
        if hasattr(self, "slices"):
            self.slices.settle()
            self.same_places()
        super().teardown()


TestSlicedMachine = SlicedMachine.TestCase
TestSlicedMachine.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
