"""Decisions of Kubernetes 1.36 in the golden files, as far as they have texts: statuses and messages."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

__all__ = ["RecordedPod", "recorded"]

GOLDEN = Path(__file__).parent / "golden"


class RecordedStatus(msgspec.Struct):
    """Status of a plugin."""

    code: str
    plugin: str = ""
    reasons: list[str] = []


class RecordedPreemption(msgspec.Struct):
    """Answer of PostFilter, and the nodes where no eviction helps."""

    status: RecordedStatus
    rejected: dict[str, RecordedStatus] = {}


class RecordedPreFilter(RecordedStatus):
    """Answer of PreFilter. ``nodes``: the only nodes to look at."""

    nodes: list[str] | None = None


class RecordedPod(msgspec.Struct, rename="camel"):
    """Decision of Kubernetes 1.36 about a pod, as far as it has texts."""

    outcome: str = ""
    message: str = ""
    filters: dict[str, RecordedStatus] = {}
    pre_filter: RecordedPreFilter | None = None
    pre_enqueue: RecordedStatus | None = None
    preemption: RecordedPreemption | None = None

    def statuses(self) -> Iterator[tuple[str, RecordedStatus]]:
        """Each status, with its place."""
        yield from (("filters", status) for status in self.filters.values())
        yield from (("preFilter", status) for status in (self.pre_filter,) if status)
        yield from (("preEnqueue", status) for status in (self.pre_enqueue,) if status)
        if self.preemption:
            yield "postFilter", self.preemption.status
            yield from (("rejected", status) for status in self.preemption.rejected.values())


class RecordedPods(msgspec.Struct):
    """Decisions of one scenario: of pods at the start, or of a sequence."""

    pods: list[RecordedPod] = []
    steps: list[RecordedPod] = []


class RecordedLine(msgspec.Struct):
    """Line of a golden file, without its scenario."""

    expected: RecordedPods


@cache
def recorded() -> list[RecordedPod]:
    """Every recorded decision, with or without a text."""
    decoder, found = msgspec.json.Decoder(RecordedLine), []
    for path in sorted(GOLDEN.glob("*.jsonl.gz")):
        if not path.name.startswith(("config", "protobuf", "hints")):
            for line in gzip.decompress(path.read_bytes()).splitlines():
                expected = decoder.decode(line).expected
                found += [*expected.pods, *expected.steps]
    return found
