"""Workload files: test cases, their operations and parameters, checked before anything runs.

Source: rules/benchmark-format §2, §6, §8.1, §9. An invalid workload is reported when it is chosen, so that other
workloads of the same file can be run. Caller: ``kubesched bench``; :mod:`.execute` carries the operations out.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from kubesched.api.groups import GATES
from kubesched.api.yamltext import TextError, read_single
from kubesched.base.times import parse_duration
from kubesched.scheduler.config import FeatureGateError, FeatureGates

__all__ = [
    "AllocResourceClaims",
    "AllocatableNodes",
    "Barrier",
    "Churn",
    "CreateAny",
    "CreateNamespaces",
    "CreateNodes",
    "CreatePods",
    "CreateResourceClaims",
    "CreateResourceDriver",
    "DeletePods",
    "Operation",
    "Param",
    "Sleep",
    "StartCollecting",
    "StopCollecting",
    "UpdateAny",
    "Workload",
    "WorkloadError",
    "labels_match",
    "load_workloads",
    "topic_of",
]


#: Upstream's topics whose names differ from their folders.
_TOPICS: Final = {"topology_spreading": "topologyspreading", "event_handling": "eventhandling"}
_ROOTS: Final = ("dra",)
_RATES: Final = ("pods_per_second", "update_per_second", "delete_pods_per_second")
_FEATURES_PARAM: Final = "numNodeDeclaredFeatures"

#: Value of a parameter.
Param = int | float | bool | str


class WorkloadError(ValueError):
    """Workload that cannot be run. The message names it, the place and a correct form."""


class _Op(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    opcode: str


class LabelNodes(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Label whose values are dealt round robin."""

    label_key: str
    label_values: list[str]


class UniqueLabel(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Label with a value of its own on every node."""

    label_key: str


class DriverLimit(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    count: int


class AllocatableNodes(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Content of every node's CSINode.

    ``node_allocatable`` has no effect, as upstream (rules/benchmark-format §12 quirk 7).
    """

    node_allocatable: dict[str, str] = {}
    csi_node_allocatable: dict[str, DriverLimit] = {}
    migrated_plugins: list[str] = []


class CreateNodes(_Op, frozen=True, kw_only=True):
    count: int = 0
    node_template_path: str = ""
    node_allocatable_strategy: AllocatableNodes | None = None
    label_node_prepare_strategy: LabelNodes | None = None
    unique_node_label_strategy: UniqueLabel | None = None


class CreateNamespaces(_Op, frozen=True, kw_only=True):
    prefix: str
    count: int = 0
    namespace_template_path: str = ""


class CreatePods(_Op, frozen=True, kw_only=True):
    count: int = 0
    namespace: str = ""
    pod_template_path: str = ""
    persistent_volume_template_path: str = ""
    persistent_volume_claim_template_path: str = ""
    collect_metrics: bool = False
    skip_wait_to_completion: bool = False
    #: Most pods created per second; 0 for no limit. A field of our own, for latencies under a steady load.
    pods_per_second: int = 0
    #: True to create batches of ``count`` pods for ``duration``. A batch is created after the previous one is bound and
    #: deleted.
    steady_state: bool = False
    duration: str = "0s"


class CreateAny(_Op, frozen=True, kw_only=True):
    """Operation that creates objects of any known kind, and their namespace if it is missing."""

    template_path: str
    count: int = 1
    namespace: str = ""


class UpdateAny(_Op, frozen=True, kw_only=True):
    """Operation that writes an object twice per index: to its resource (or subresource), then its status.

    Reads nothing.
    """

    template_path: str
    count: int = 1
    namespace: str = ""
    update_per_second: int = 0
    subresources: list[str] = []
    #: True to go on with the next operation at once. A field of our own, for changes during a measurement.
    skip_wait_to_completion: bool = False


class CreateResourceDriver(_Op, frozen=True, kw_only=True):
    """Operation that publishes a ResourceSlice for every node whose name matches the glob ``nodes``."""

    driver_name: str
    nodes: str
    max_claims_per_node: int = 0


class CreateResourceClaims(_Op, frozen=True, kw_only=True):
    """Operation that creates claims from a template; works like createAny."""

    namespace: str
    template_path: str
    count: int = 0


class AllocResourceClaims(_Op, frozen=True, kw_only=True):
    """Operation that allocates the claims of a namespace with the structured allocator. Without a namespace, it
    allocates all claims.
    """

    namespace: str = ""


class _CreatePodSets(_Op, frozen=True, kw_only=True):
    """Operation that is expanded to ``count`` createPods operations when a workload is prepared."""

    count: int = 0
    namespace_prefix: str
    create_pods_op: dict[str, Any]


class DeletePods(_Op, frozen=True, kw_only=True):
    namespace: str
    label_selector: dict[str, str] = {}
    delete_pods_per_second: int = 0
    skip_wait_to_completion: bool = False


class Churn(_Op, frozen=True, kw_only=True):
    mode: str
    number: int = 0
    interval_milliseconds: int = 500
    template_paths: list[str]
    namespace: str = ""


class Barrier(_Op, frozen=True, kw_only=True):
    namespaces: list[str] = []
    label_selector: dict[str, str] = {}
    stage_requirement: str = "Scheduled"


class Sleep(_Op, frozen=True, kw_only=True):
    duration: str = "0s"


class StartCollecting(_Op, frozen=True, kw_only=True):
    name: str = ""
    namespaces: list[str]
    label_selector: dict[str, str] = {}


class StopCollecting(_Op, frozen=True, kw_only=True):
    pass


Operation = (
    CreateNodes
    | CreateNamespaces
    | CreatePods
    | CreateAny
    | UpdateAny
    | CreateResourceDriver
    | CreateResourceClaims
    | AllocResourceClaims
    | DeletePods
    | Churn
    | Barrier
    | Sleep
    | StartCollecting
    | StopCollecting
)

_OPCODES: Final[dict[str, type[_Op]]] = {
    "createNodes": CreateNodes,
    "createNamespaces": CreateNamespaces,
    "createPods": CreatePods,
    "createAny": CreateAny,
    "updateAny": UpdateAny,
    "createResourceDriver": CreateResourceDriver,
    "createResourceClaims": CreateResourceClaims,
    "allocResourceClaims": AllocResourceClaims,
    "createPodSets": _CreatePodSets,
    "deletePods": DeletePods,
    "churn": Churn,
    "barrier": Barrier,
    "sleep": Sleep,
    "startCollectingMetrics": StartCollecting,
    "stopCollectingMetrics": StopCollecting,
}


class ThresholdSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Selector of the figure that a threshold is about."""

    name: str
    labels: dict[str, str] = {}
    data_bucket: str
    expect_lower: bool = False


class _WorkloadSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    name: str
    params: dict[str, Param] = {}
    labels: list[str] = []
    feature_gates: dict[str, bool] = {}
    threshold: float | dict[str, float] = 0
    threshold_metric_selector: ThresholdSelector | None = None


class _CaseSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    name: str
    workload_template: list[dict[str, Any]]
    workloads: list[_WorkloadSpec]
    default_pod_template_path: str = ""
    scheduler_config_path: str = ""
    feature_gates: dict[str, bool] = {}
    labels: list[str] = []
    metrics_collector_config: Any = None
    default_threshold_metric_selector: ThresholdSelector | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Workload of a test case. Its paths are relative to ``folder``."""

    case: str
    name: str
    folder: Path
    params: dict[str, Param]
    feature_gates: dict[str, bool]
    #: Feature gates that the workload itself sets, and not its case.
    own_gates: dict[str, bool] = {}
    default_pod_template_path: str
    scheduler_config_path: str
    template: list[dict[str, Any]]
    labels: frozenset[str] = frozenset()
    #: Figure that :attr:`selector` must exceed; 0 when the workload has no threshold.
    threshold: float = 0
    selector: ThresholdSelector = ThresholdSelector(name="SchedulingThroughput", data_bucket="Average")

    @property
    def title(self) -> str:
        return f"{self.case}/{self.name}"

    @property
    def gates(self) -> FeatureGates:
        """Feature gates in effect: the defaults, and those of pod groups as the workload sets them.

        Raises:
            WorkloadError: when a gate needs another one that is off.
        """
        try:
            return FeatureGates.of({name: value for name, value in self.feature_gates.items() if name in GATES})
        except FeatureGateError as error:
            raise WorkloadError(f"{self.title}: featureGates: {error}") from None

    @property
    def fake_features(self) -> tuple[str, ...]:
        """Node features that this workload declares on its nodes and that its pods need.

        See rules/benchmark-format §4, topic hook.
        """
        if not self.own_gates.get("NodeDeclaredFeatures"):
            return ()
        count = self.params.get(_FEATURES_PARAM, 0)
        if isinstance(count, bool) or not isinstance(count, int | float) or count < 0:
            raise WorkloadError(f"{self.title}: {_FEATURES_PARAM}: must be a number of features, got {count!r}")
        return tuple(sorted(f"Feature{number}" for number in range(1, int(count) + 1)))

    def with_params(self, **params: Param) -> Workload:
        """Return the workload with other parameter values.

        Raises:
            WorkloadError: when the workload has no parameter of that name.
        """
        for name in params:
            if name not in self.params:
                known = ", ".join(sorted(self.params)) or "none"
                raise WorkloadError(f"{self.title}: there is no parameter {name} to be set (there are: {known})")
        return msgspec.structs.replace(self, params={**self.params, **params})

    def operations(self) -> list[Operation]:
        """Return the operations, parameters filled in and createPodSets expanded. The list index is the op index.

        Raises:
            WorkloadError: for anything that is wrong or not supported, before anything has run.
        """
        used: set[str] = {_FEATURES_PARAM} if self.fake_features else set()
        result: list[Operation] = []
        for number, raw in enumerate(self.template):
            where = f"{self.title}: operation {number}"
            op = _operation(raw, self.params, used, where)
            if isinstance(op, _CreatePodSets):
                for index in range(op.count):
                    inner = _operation(op.create_pods_op, self.params, used, f"{where}: createPodsOp")
                    if not isinstance(inner, CreatePods):
                        raise WorkloadError(f"{where}: createPodsOp must be a createPods operation")
                    result.append(msgspec.structs.replace(inner, namespace=f"{op.namespace_prefix}-{index}"))
            else:
                result.append(op)  # type: ignore[arg-type]  # the table of opcodes holds no others
        unused = sorted(self.params.keys() - used)
        if unused:
            raise WorkloadError(f"{self.title}: nothing asks for the parameters {', '.join(unused)}")
        _check(self.title, result)
        return result


def _check(title: str, operations: list[Operation]) -> None:
    for number, op in enumerate(operations):
        where = f"{title}: operation {number} ({op.opcode})"
        if isinstance(op, CreatePods) and op.collect_metrics and op.skip_wait_to_completion:
            raise WorkloadError(f"{where}: collectMetrics and skipWaitToCompletion exclude each other")
        if isinstance(op, CreatePods) and op.steady_state:
            _check_steady_state(op, where)
        if isinstance(op, CreatePods) and bool(op.persistent_volume_template_path) is not bool(
            op.persistent_volume_claim_template_path
        ):
            raise WorkloadError(
                f"{where}: persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath need each other"
            )
        if isinstance(op, Churn):
            if op.mode not in ("create", "recreate"):
                raise WorkloadError(f"{where}: mode must be create or recreate, got {op.mode!r}")
            if not op.template_paths or (op.mode == "recreate" and op.number < 1):
                raise WorkloadError(f"{where}: needs templatePaths, and number greater than 0 when mode is recreate")
        if isinstance(op, Barrier) and op.stage_requirement not in ("Scheduled", "Attempted"):
            raise WorkloadError(
                f"{where}: stageRequirement must be Scheduled or Attempted, got {op.stage_requirement!r}"
            )
        if any(getattr(op, name, 0) < 0 for name in _RATES):
            raise WorkloadError(f"{where}: a rate per second must not be negative")
        if getattr(op, "count", 0) < 0:
            raise WorkloadError(f"{where}: count must not be negative")
    if not any(
        isinstance(op, StopCollecting) or (isinstance(op, CreatePods) and op.collect_metrics) for op in operations
    ):
        raise WorkloadError(f"{title}: nothing is measured: give a createPods operation collectMetrics: true")


def _check_steady_state(op: CreatePods, where: str) -> None:
    if op.skip_wait_to_completion:
        raise WorkloadError(f"{where}: steadyState and skipWaitToCompletion exclude each other")
    try:
        seconds = parse_duration(op.duration)
    except ValueError as error:
        raise WorkloadError(f"{where}: duration: {error}") from None
    if seconds <= 0 or op.count < 1:
        raise WorkloadError(f"{where}: steadyState needs a duration and a count greater than 0")


def _operation(raw: dict[str, Any], params: dict[str, Any], used: set[str], where: str) -> _Op:
    opcode = raw.get("opcode")
    if opcode not in _OPCODES:
        raise WorkloadError(f"{where}: unknown opcode {opcode!r}; supported are {', '.join(_OPCODES)}")
    filled = {}
    for key, value in raw.items():
        if key.endswith("Param"):
            if not isinstance(value, str) or not value.startswith("$"):
                raise WorkloadError(f"{where} ({opcode}): {key}: must be $ and a parameter's name, got {value!r}")
            name = value[1:]
            if name not in params:
                raise WorkloadError(f"{where} ({opcode}): {key}: there is no parameter {name}")
            used.add(name)
            given = params[name]
            filled[key.removesuffix("Param")] = int(given) if isinstance(given, float) else given
    filled = {**{key: value for key, value in raw.items() if not key.endswith("Param")}, **filled}
    try:
        return msgspec.convert(filled, _OPCODES[opcode])
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{where} ({opcode}): {error}") from None


def load_workloads(path: Path) -> list[Workload]:
    """Return the workloads of a file, in file order. A folder stands for the ``performance-config.yaml`` in it.

    Raises:
        WorkloadError: when the file cannot be read or is not in the format.
    """
    if path.is_dir():
        path /= "performance-config.yaml"
    try:
        data = read_single(path.read_bytes(), "workload file")
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from None
    except TextError as error:
        raise WorkloadError(error.in_file(str(path))) from None
    try:
        cases = msgspec.convert(data, list[_CaseSpec])
    except msgspec.ValidationError as error:
        raise WorkloadError(f"{path}: not a workload file: {error}") from None
    if not any(case.workloads for case in cases):
        raise WorkloadError(f"{path}: there are no workloads")
    topic = topic_of(path.parent)
    return [
        Workload(
            case=case.name,
            name=workload.name,
            folder=path.parent,
            params=dict(workload.params),
            feature_gates={**case.feature_gates, **workload.feature_gates},
            own_gates=workload.feature_gates,
            default_pod_template_path=case.default_pod_template_path,
            scheduler_config_path=case.scheduler_config_path,
            template=case.workload_template,
            labels=frozenset((*case.labels, *workload.labels)),
            threshold=workload.threshold.get(topic, 0) if isinstance(workload.threshold, dict) else workload.threshold,
            selector=workload.threshold_metric_selector
            or case.default_threshold_metric_selector
            or ThresholdSelector(name="SchedulingThroughput", data_bucket="Average"),
        )
        for case in cases
        for workload in case.workloads
    ]


def topic_of(folder: Path) -> str:
    """Return the topic of a folder, for thresholds and result files: ``dra_x`` for ``dra/x``."""
    parts = folder.resolve().parts
    for root in _ROOTS:
        if root in parts:
            return "_".join(parts[len(parts) - 1 - parts[::-1].index(root) :])
    name = parts[-1] if parts else ""
    return _TOPICS.get(name, name)


def labels_match(labels: Collection[str], expression: str) -> bool:
    """True if labels satisfy ``performance,-short``: ``x`` and ``+x`` must be there, ``-x`` must not.

    See rules/benchmark-format §9.
    """
    for word in filter(None, (part.strip() for part in expression.split(","))):
        if word.startswith("-"):
            if word[1:] in labels:
                return False
        elif word.removeprefix("+") not in labels:
            return False
    return True
