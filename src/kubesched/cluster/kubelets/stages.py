"""Stage rules: actions on a pod of a hollow node or on a volume, with their time and failure rate. Read from YAML.

``docs/controllers.md``, "Hollow nodes", has every member of a rule, and an example of each kind. A stage fires once
each time its selector begins to hold. Rules of a ``kind`` other than Pod are for drivers of storage and devices: they
have no ``next``, as their action is fixed, and their ``failure`` has a rate and a reason only. Callers: :mod:`.hollow`,
and controllers of storage. A kind without rules has its default ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from kubesched.api.decode import DecodeError, from_builtins
from kubesched.api.kinds import PODS
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector, parse_selector_text
from kubesched.api.types import LabelSelector, ObjectMeta, Pod
from kubesched.api.wire import ApiError
from kubesched.api.yamltext import TextError, read_single

from ..schema import check_type, encode_clean
from .entries import Entry

__all__ = ["DURATION", "EXIT", "Delay", "Failure", "Next", "Stage", "StageError", "choose", "default_stages"]
__all__ += ["job_end", "load_stages", "parse_stages", "rules_of"]

#: Annotation: time that a pod runs before it finishes, such as ``30s``. Without it a pod runs until deleted.
DURATION: Final = "kubesched.io/duration"
#: Annotation: phase of a pod that finishes, ``Succeeded`` (default) or ``Failed``.
EXIT: Final = "kubesched.io/exit"

#: Phases of a pod, and the end of the message about a text that is no phase.
_PHASES: Final = (("Pending", "Running", "Succeeded", "Failed", "Unknown"), "is not a phase")

#: Selector keys of every kind that has labels, then the further keys of each kind. The first kind is the default.
_OF_OBJECTS: Final = ("namespaces", "matchLabels", "matchExpressions", "matchAnnotations", "hasAnnotations")
_SELECTORS: Final[dict[str, tuple[str, ...]]] = {
    "Pod": ("phase", "deleted", "ready", *_OF_OBJECTS),
    "PersistentVolumeClaim": ("storageClasses", "nodeLabels", *_OF_OBJECTS),
    "VolumeAttachment": ("drivers", "nodeLabels", "deleted"),
    "ResourceClaim": ("drivers", "nodeLabels", *_OF_OBJECTS),
}


class StageError(ValueError):
    """Stage rules that cannot be used. The message names the place and a correct form."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Time until a stage fires, in seconds. ``most`` bounds the grace period."""

    seconds: float = 0.0
    jitter: float = 0.0
    seconds_from: str = ""
    grace: bool = False
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure rate of a stage, and the status of a failure."""

    rate: float = 0.0
    phase: str = "Failed"
    reason: str = "Error"
    exit_code: int = 1


@dataclass(frozen=True, slots=True)
class Next:
    """Action of a stage."""

    phase: str = ""
    phase_from: str = ""
    ready: bool | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    delete: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """Rule; the module describes its members. ``sources`` are storage classes or drivers."""

    name: str
    phases: frozenset[str] = frozenset()
    deleted: bool | None = None
    ready: bool | None = None
    namespaces: frozenset[str] = frozenset()
    labels: Selector | None = None
    annotations: tuple[tuple[str, str], ...] = ()
    has_annotations: tuple[str, ...] = ()
    weight: float = 1.0
    delay: Delay = Delay()
    failure: Failure = Failure()
    next: Next = field(default_factory=Next)
    kind: str = "Pod"
    sources: frozenset[str] = frozenset()
    node_labels: tuple[tuple[str, str], ...] = ()

    def matches(self, pod: Pod, *, ready: bool) -> bool:
        """True if this stage matches a pod in its present state."""
        return (
            (not self.phases or (pod.status.phase or "Pending") in self.phases)
            and (self.ready is None or self.ready is ready)
            and self._admits(pod.metadata)
        )

    def matches_volume(self, metadata: ObjectMeta, source: str, node_labels: Mapping[str, str]) -> bool:
        """True if this stage matches a claim of a storage class, or an attachment or claim of a driver, at a node."""
        return (
            (not self.sources or source in self.sources)
            and all(node_labels.get(key) == value for key, value in self.node_labels)
            and self._admits(metadata)
        )

    def _admits(self, metadata: ObjectMeta) -> bool:
        annotations = metadata.annotations
        return (
            (self.deleted is None or self.deleted is (metadata.deletion_timestamp is not None))
            and (not self.namespaces or metadata.namespace in self.namespaces)
            and (self.labels is None or self.labels.matches(metadata.labels))
            and all(annotations.get(key) for key in self.has_annotations)
            and all(annotations.get(key) == value for key, value in self.annotations)
        )

    def seconds(self, random: Random) -> float:
        """Return the delay of a stage that depends on no pod: fixed part and jitter."""
        delay = self.delay
        return delay.seconds + (random.uniform(0.0, delay.jitter) if delay.jitter else 0.0)

    def fails(self, random: Random) -> bool:
        """True if the work of the stage fails this time. Draws a random number only if there is a rate."""
        return bool(self.failure.rate) and random.random() < self.failure.rate


#: Annotation of the objects that Helm makes and waits for.
_HOOK: Final = "helm.sh/hook"
_RUNNING: Final = frozenset({"Running"})
#: By default provisioning takes a second, and attaching no time.
_STORAGE: Final = (
    Stage("volume-provision", kind="PersistentVolumeClaim", delay=Delay(1.0)),
    Stage("volume-attach", kind="VolumeAttachment"),
)


def choose(stages: Sequence[Stage], random: Random) -> Stage | None:
    """Return one of the stages, chosen by weight; None when all weights are 0."""
    if len(stages) == 1:
        return stages[0] if stages[0].weight > 0 else None
    total = sum(stage.weight for stage in stages)
    if total <= 0:
        return None
    return random.choices(stages, [stage.weight for stage in stages])[0]


def default_stages(startup_delay: float = 1.0, stop_delay: float | None = None) -> tuple[Stage, ...]:
    """Return rules for pods: Pending → Running → (Succeeded) → gone.

    A pod succeeds after its annotation ``kubesched.io/duration``. A deleted pod is gone after its grace period.

    ``stop_delay`` shortens the grace period.

    Raises:
        StageError: for a delay that is negative.
    """
    delays = Entry({"startup_delay": startup_delay, "stop_delay": stop_delay}, "the default stages", StageError)
    most = None if stop_delay is None else delays.number("stop_delay")
    start, finish = Delay(delays.number("startup_delay")), Delay(seconds_from=DURATION)
    ends = Next("Succeeded", EXIT)
    return (
        Stage("pod-stop", deleted=True, delay=Delay(grace=True, most=most), next=Next(delete=True)),
        Stage("pod-start", frozenset({"Pending"}), deleted=False, delay=start, next=Next("Running")),
        Stage("pod-finish", _RUNNING, deleted=False, has_annotations=(DURATION,), delay=finish, next=ends),
    )


def job_end(seconds: float) -> tuple[Stage, ...]:
    """Return stages that let pods of Jobs, and pods that are hooks or tests of Helm, succeed some seconds after their
    start. An annotation may override it.
    """
    delay, ends = Delay(seconds, seconds_from=DURATION), Next("Succeeded", EXIT)
    of_job, of_helm = parse_selector_text("batch.kubernetes.io/job-name"), (_HOOK,)
    return (
        Stage("job-finish", _RUNNING, deleted=False, labels=of_job, delay=delay, next=ends),
        Stage("hook-finish", _RUNNING, deleted=False, has_annotations=of_helm, delay=delay, next=ends),
    )


def rules_of(kind: str, stages: Iterable[Stage], defaults: Iterable[Stage] | None = None) -> tuple[Stage, ...]:
    """Return the rules of one kind, or its default rules if there are none."""
    built_in = (*default_stages(), *_STORAGE) if defaults is None else defaults
    return tuple(one for one in stages if one.kind == kind) or tuple(one for one in built_in if one.kind == kind)


# -- reading -----------------------------------------------------------------------------------------------


def load_stages(paths: Iterable[str | Path]) -> tuple[Stage, ...]:
    """Return the stages of some files, in order.

    Raises:
        StageError: for a file that cannot be read or used.
    """
    stages: list[Stage] = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        stages += parse_stages(text, str(path))
    return tuple(stages)


def parse_stages(text: str, source: str = "<text>") -> tuple[Stage, ...]:
    """Return the stages of a YAML text; ``source`` is its name in messages.

    Raises:
        StageError: naming the stage and the field.
    """
    try:
        data = read_single(text, "stage file")
    except TextError as error:
        raise StageError(error.in_file(source)) from None
    if not isinstance(data, dict) or not isinstance(data.get("stages"), list):
        raise StageError(f"{source}: expected an object with a list `stages:`")
    Entry(data, source, StageError).only("stages")
    stages = [_stage(item, f"{source}: stages[{index}]") for index, item in enumerate(data["stages"])]
    names = [stage.name for stage in stages]
    for name in names:
        if names.count(name) > 1:
            raise StageError(f"{source}: stage {name!r} is given twice; rename one of them")
    return tuple(stages)


def _stage(data: Any, where: str) -> Stage:
    entry = Entry(data, where, StageError)
    kind = entry.choice("kind", tuple(_SELECTORS), "has no stage rules", "Pod")
    is_pod = kind == "Pod"
    entry.only("name", "kind", "selector", "weight", "delay", "failure", *(("next",) if is_pod else ()))
    name = entry.named("name", "give the stage a name, which problems show")
    entry.where = f"{where} ({name})"
    selector = entry.entry("selector")
    selector.only(*_SELECTORS[kind])
    labels: Selector | None = None
    given = {key: selector.data[key] for key in ("matchLabels", "matchExpressions") if selector.data.get(key)}
    if given:
        try:
            labels = compile_label_selector(from_builtins(given, LabelSelector), selector.where)
        except (DecodeError, SelectorError) as error:
            raise selector.refusal("", str(error)) from None
    return Stage(
        name,
        frozenset(selector.texts("phase", *_PHASES)),
        selector.flag("deleted"),
        selector.flag("ready"),
        frozenset(selector.texts("namespaces")),
        labels,
        _pairs(selector.entry("matchAnnotations")),
        tuple(selector.texts("hasAnnotations")),
        entry.number("weight", 1.0),
        _delay(entry.entry("delay"), is_pod=is_pod),
        _failure(entry.entry("failure"), is_pod=is_pod),
        _next(entry.entry("next")) if is_pod else Next(),
        kind,
        frozenset(selector.texts("storageClasses") + selector.texts("drivers")),
        _pairs(selector.entry("nodeLabels")),
    )


def _pairs(entry: Entry) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in entry.data.items())


def _delay(entry: Entry, *, is_pod: bool) -> Delay:
    entry.only("seconds", "jitter", *(("secondsFrom", "grace") if is_pod else ()))
    seconds, grace = entry.seconds("seconds"), bool(entry.flag("grace"))
    most = seconds if grace and "seconds" in entry.data else None
    return Delay(0.0 if grace else seconds, entry.seconds("jitter"), entry.text("secondsFrom"), grace, most)


def _failure(entry: Entry, *, is_pod: bool) -> Failure:
    entry.only("rate", "reason", *(("phase", "exitCode") if is_pod else ()))
    phase = entry.choice("phase", *_PHASES, "Failed")
    reason = entry.text("reason") or ("Error" if is_pod else "Internal")
    return Failure(entry.number("rate", most=1.0), phase, reason, int(entry.number("exitCode", 1)))


def _next(entry: Entry) -> Next:
    entry.only("phase", "phaseFrom", "ready", "status", "delete")
    if not entry.data:
        raise entry.refusal("", "is missing; say what the stage does")
    status = entry.entry("status")
    if status.data:
        try:
            check_type("PodStatus", encode_clean(status.data, status.where), PODS, status.where)
        except ApiError as error:
            raise status.refusal("", f"cannot be a pod's status: {error}") from None
    phase = entry.choice("phase", *_PHASES)
    return Next(phase, entry.text("phaseFrom"), entry.flag("ready"), status.data, bool(entry.flag("delete")))
