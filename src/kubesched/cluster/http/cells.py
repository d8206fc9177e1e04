"""The readers that make cells of table rows where a path alone does not: ``columns.txt`` names them.

Every reader takes the object as plain data, the time, and the arguments of the table. Callers: :mod:`.columns`; pods are
in :mod:`.pod_cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import inf
from typing import Any, Final, TypeVar

from ...api.times import parse_time
from .jsonpath import find, found_all

__all__ = ["READERS", "age_of", "as_dict", "as_items", "human_duration", "moment", "reader", "selector_text"]

Data = Mapping[str, Any]
_Reader = TypeVar("_Reader", bound=Callable[..., Any])

#: Readers by name.
READERS: Final[dict[str, Callable[..., Any]]] = {}


def reader(function: _Reader) -> _Reader:
    """Make a reader known under its name."""
    READERS[function.__name__] = function
    return function


def as_dict(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def as_items(value: Any) -> list[Data]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# -- ages, as kubectl shows them ----------------------------------------------------------------------------


_DAY: Final = 86400
#: Below so many seconds: a unit and its length, and the unit that is shown after it.
_SCALES: Final[tuple[tuple[float, str, int, str, int], ...]] = (
    (120, "s", 1, "", 0),
    (600, "m", 60, "s", 1),
    (3 * 3600, "m", 60, "", 0),
    (8 * 3600, "h", 3600, "m", 60),
    (2 * _DAY, "h", 3600, "", 0),
    (8 * _DAY, "d", _DAY, "h", 3600),
    (730 * _DAY, "d", _DAY, "", 0),
    (8 * 365 * _DAY, "y", 365 * _DAY, "d", _DAY),
    (inf, "y", 365 * _DAY, "", 0),
)


def human_duration(seconds: float) -> str:
    """A duration in one or two units, coarser the longer it is."""
    total = int(seconds)
    if total < 0:
        return "<invalid>" if total < -1 else "0s"
    _, unit, length, fine_unit, fine_length = next(scale for scale in _SCALES if total < scale[0])
    count, rest = divmod(total, length)
    fine = rest // fine_length if fine_length else 0
    return f"{count}{unit}{fine}{fine_unit}" if fine else f"{count}{unit}"


@lru_cache(maxsize=4096)
def _moment(text: str) -> float | None:
    try:
        return parse_time(text)
    except ValueError:
        return None


def moment(text: Any) -> float | None:
    """Seconds since the epoch of a timestamp; None for anything else."""
    return _moment(text) if isinstance(text, str) and text else None


def age_of(text: Any, now: float) -> str:
    """How long ago a timestamp was."""
    then = moment(text)
    return "<unknown>" if then is None else human_duration(now - then)


# -- texts -------------------------------------------------------------------------------------------------


def _joined(items: Iterable[Any], limit: int = 0, default: str = "<none>") -> str:
    texts = [str(item) for item in items]
    if limit and len(texts) > limit:
        return ",".join(texts[:limit]) + f" + {len(texts) - limit} more..."
    return ",".join(texts) or default


def selector_text(value: Any) -> str:
    """A label selector, or a plain map, as kubectl writes it: ``a=b,c in (d,e)``."""
    data = as_dict(value)
    parts = []
    is_selector = "matchLabels" in data or "matchExpressions" in data
    for name, label in sorted(as_dict(data.get("matchLabels") if is_selector else data).items()):
        parts.append(f"{name}={label}")
    for item in as_items(data.get("matchExpressions")):
        key, operator, values = item.get("key"), item.get("operator"), ",".join(map(str, item.get("values") or ()))
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": f"{key}",
            "DoesNotExist": f"!{key}",
        }
        parts.append(forms.get(str(operator), f"{key} {operator} {values}"))
    return _joined(parts)


# -- readers for many kinds --------------------------------------------------------------------------------


@reader
def age(data: Data, now: float) -> str:
    return age_of(find(data, ".metadata.creationTimestamp"), now)


@reader
def since(data: Data, now: float, path: str) -> str:
    value = find(data, path)
    return age_of(value, now) if value else "<none>"


@reader
def each(data: Data, now: float, path: str, limit: str = "0", default: str = "<none>") -> str:
    """All values at a path, the first ``limit`` of them if that is not 0."""
    return _joined(found_all(data, path), int(limit), default)


@reader
def count(data: Data, now: float, *paths: str) -> int:
    """How many members lists or objects have."""
    return sum(len(value) for path in paths if isinstance(value := find(data, path), list | dict))


@reader
def selector(data: Data, now: float, path: str) -> str:
    return selector_text(find(data, path))


@reader
def pair(data: Data, now: float, left: str, right: str, default: str = "") -> str:
    """Two values with a slash; nothing when there is neither."""
    values = [find(data, path) or default for path in (left, right)]
    return "/".join(map(str, values)) if any(value != "" for value in values) else ""


@reader
def flag(data: Data, now: float, path: str) -> str:
    return "true" if find(data, path) else "false"


@reader
def terminating_or(data: Data, now: float, path: str) -> str:
    return "Terminating" if find(data, ".metadata.deletionTimestamp") else str(find(data, path) or "")


_ACCESS: Final = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


@reader
def access(data: Data, now: float, path: str) -> str:
    return _joined((_ACCESS.get(str(mode), mode) for mode in found_all(data, f"{path}[*]")), default="")


# -- readers for one kind ----------------------------------------------------------------------------------


@reader
def node(data: Data, now: float) -> list[Any]:
    """A whole row."""
    metadata, spec, status = as_dict(data.get("metadata")), as_dict(data.get("spec")), as_dict(data.get("status"))
    conditions = {item.get("type"): item.get("status") for item in as_items(status.get("conditions"))}
    state = {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")
    if spec.get("unschedulable"):
        state += ",SchedulingDisabled"
    roles = set()
    for key, value in as_dict(metadata.get("labels")).items():
        if key.startswith("node-role.kubernetes.io/") and key[24:]:
            roles.add(key[24:])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    addresses = {item.get("type"): item.get("address") for item in reversed(as_items(status.get("addresses")))}
    info = as_dict(status.get("nodeInfo"))
    return [
        metadata.get("name"),
        state,
        _joined(sorted(roles)),
        age(data, now),
        info.get("kubeletVersion") or "",
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        *(info.get(name) or "<unknown>" for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


@reader
def event(data: Data, now: float) -> list[Any]:
    """A whole row."""
    regarding = as_dict(data.get("involvedObject") or data.get("regarding"))
    source = as_dict(data.get("source") or data.get("deprecatedSource"))
    series = as_dict(data.get("series"))
    created = find(data, ".metadata.creationTimestamp")
    first = data.get("firstTimestamp") or data.get("deprecatedFirstTimestamp") or data.get("eventTime")
    last = data.get("lastTimestamp") or data.get("deprecatedLastTimestamp") or data.get("eventTime")
    component = source.get("component") or data.get("reportingComponent") or data.get("reportingController") or ""
    host = source.get("host")
    return [
        age_of(series.get("lastObservedTime") or last or created, now),
        data.get("type") or "",
        data.get("reason") or "",
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        regarding.get("fieldPath") or "",
        f"{component}, {host}" if host else component,
        str(data.get("message") or data.get("note") or "").strip(),
        age_of(first or created, now),
        series.get("count") or data.get("count") or data.get("deprecatedCount") or 1,
        find(data, ".metadata.name"),
    ]


@reader
def service_ports(data: Data, now: float) -> str:
    texts = []
    for port in as_items(find(data, ".spec.ports")):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        texts.append(f"{port.get('port')}{node_port}/{port.get('protocol') or 'TCP'}")
    return _joined(texts)


@reader
def service_external(data: Data, now: float) -> str:
    spec = as_dict(data.get("spec"))
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName"))
    found = [*_load_balancer(data), *(spec.get("externalIPs") or [])]
    return _joined(found, default="<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


@reader
def load_balancer(data: Data, now: float) -> str:
    return _joined(_load_balancer(data), default="")


def _load_balancer(data: Data) -> list[Any]:
    found = as_items(find(data, ".status.loadBalancer.ingress"))
    return [item.get("ip") or item.get("hostname") or "" for item in found]


@reader
def ingress_ports(data: Data, now: float) -> str:
    return "80, 443" if find(data, ".spec.tls") else "80"


@reader
def job_state(data: Data, now: float) -> str:
    """Upstream's order (``printJob``), in whatever order the conditions are listed."""
    true = {item.get("type") for item in as_items(find(data, ".status.conditions")) if item.get("status") == "True"}
    if find(data, ".metadata.deletionTimestamp"):
        true.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget")
    return next((state for state in order if state in true), "Running")


@reader
def job_completions(data: Data, now: float) -> str:
    done, wanted = find(data, ".status.succeeded") or 0, find(data, ".spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = find(data, ".spec.parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


@reader
def job_duration(data: Data, now: float) -> str:
    started, ended = moment(find(data, ".status.startTime")), moment(find(data, ".status.completionTime"))
    return "" if started is None else human_duration((now if ended is None else ended) - started)


@reader
def storage_class(data: Data, now: float) -> str:
    marked = find(data, ".metadata.annotations['storageclass.kubernetes.io/is-default-class']") == "true"
    return f"{find(data, '.metadata.name')}{' (default)' if marked else ''}"


@reader
def endpoints(data: Data, now: float) -> str:
    found = [
        f"{address.get('ip')}:{port.get('port')}" if port else str(address.get("ip"))
        for subset in as_items(data.get("subsets"))
        for address in as_items(subset.get("addresses"))
        for port in as_items(subset.get("ports")) or [{}]
    ]
    return _joined(found, 3)


@reader
def claim_state(data: Data, now: float) -> str:
    allocated = find(data, ".status.allocation") is not None
    states = ["deleted"] if find(data, ".metadata.deletionTimestamp") else []
    states.append("allocated" if allocated else "pending")
    if allocated and find(data, ".status.reservedFor"):
        states.append("reserved")
    return ",".join(states)


@reader
def quota(data: Data, now: float, prefix: str) -> str:
    hard, used = as_dict(find(data, ".status.hard")), as_dict(find(data, ".status.used"))
    names = [name for name in sorted(hard) if name.startswith("limits.") is (prefix == "limits")]
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


@reader
def subjects(data: Data, now: float, kind: str) -> str:
    found = [item for item in as_items(data.get("subjects")) if item.get("kind") == kind]
    names = ("namespace", "name") if kind == "ServiceAccount" else ("name",)
    return ", ".join("/".join(str(item.get(name)) for name in names) for item in found)
