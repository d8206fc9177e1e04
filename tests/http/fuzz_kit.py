"""Objects of all kinds by the OpenAPI schemas of a server, made bad in one place or several; and requests that send them.

All is drawn from one ``random.Random``: a seed gives the same requests again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec
from http_world import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api

Data = dict[str, Any]

_REF: Final = "#/components/schemas/"
_HUGE: Final = (2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**63, 10**30, -1, -(2**31), -(2**63), 0, 1, 1_000_000_000)
_NAMES: Final = (
    "a",
    "b",
    "c",
    "n0",
    "n1",
    "default",
    "web",
    "kube-system",
    "system-node-critical",
    "widgets.example.com",
)
_QUANTITIES: Final = (
    *[
        "1",
        "0",
        "100m",
        "1Gi",
        "2",
        "1e3",
        "0.1",
        "1n",
        "-1",
        "1e999999999",
        "1E",
        "1e-30",
        "9223372036854775807",
        "9223372036854775808Ei",
        ".",
        "+",
        "0x1",
        "1_0",
        "1.5",
    ],
    *("NaN", "Infinity", "1e308", "1 Gi", "", "\u0663", "9" * 4500, "0" * 3000 + "1"),
)
_TIMES: Final = (
    *[
        "2025-06-15T15:06:40Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1970-01-01T00:00:00Z",
        "2100-01-01T00:00:00Z",
    ],
    *["2025-06-15T15:06:40+14:00", "9999-12-31T23:59:59-23:59", "2025-06-15T15:06:40.123456Z", "x"],
    *("2025-06-15 15:06", ""),
)
_TEXTS: Final = (
    *[
        "a",
        "a/b",
        "example.com/a",
        "null",
        "~",
        "0",
        "0-1999999998",
        "0-1,3-5,7",
        "1999999998-0",
        "99999999999999999999",
        "@yearly",
        "1s",
        "1h30m",
        "100%",
    ],
    *[
        "1000000000%",
        "25%",
        "Always",
        "Never",
        "True",
        "False",
        "Exists",
        "In",
        "NotIn",
        "Gt",
        "Lt",
        "Equal",
        "NoSchedule",
        "NoExecute",
        "Pending",
        "Running",
    ],
    *[
        "Succeeded",
        "Failed",
        "10.0.0.0/8",
        "::/0",
        "10.0.0.1",
        "Europe/Berlin",
        "(a+)+$",
        "-",
        "Indexed",
        "Bound",
        "gpu.example.com",
        "true",
    ],
    *["kubernetes.io/hostname", "topology.kubernetes.io/zone", "metadata.name", "default-scheduler", "Delete"],
    *("", "A b", "\u00e9", "\U0001f600", "\0", "\ud7ff", "x" * 64, "x" * 300, "x" * 20_000, "a" * 63 + "!", ".." * 30),
    *("* * * * *", "*/5 * 31 2 *", "0 0 30 2 *", "@every 1ns", "@every 1s", "WaitForFirstConsumer"),
    *("self.x == 1", "device.driver == 'a'"),
    "[{driver: gpu.example.com, devices: [{name: gpu, count: 1000000000}]}]",
)
#: Values that fields of a name have in good objects.
_BY_NAME: Final[Mapping[str, tuple[Any, ...]]] = {
    "name": _NAMES,
    "namespace": ("default", "default", "kube-system", ""),
    "nodeName": ("n0", "n1", "n9"),
    "image": ("nginx", "pause:1"),
    "restartPolicy": ("Always", "Never", "OnFailure"),
    "schedulerName": ("default-scheduler",),
    "schedule": ("* * * * *", "0 0 30 2 *", "*/5 * 31 2 *", "@every 1s", "0 0 29 2 1"),
    "completionMode": ("Indexed", "NonIndexed"),
    "completedIndexes": ("0-1999999998", "0-3", "1,3,5", "0-99999999999"),
    "topologyKey": ("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
    "replicas": (0, 1, 2, 3, 2_000_000_000),
    "completions": (0, 1, 3, 2_000_000_000),
    "parallelism": (0, 1, 2, 2_000_000_000),
    "storageClassName": ("a", "b"),
    "driver": ("gpu.example.com",),
    "deviceClassName": ("a", "b"),
    "expression": ("true", "device.driver == 'gpu.example.com'", "self.x == 1", "size(self) > 0"),
    "rule": ("true", "self == oldSelf", "size(self) < 10"),
    "pattern": ("^a+$", "(a+)+$", "["),
    "operator": ("In", "Exists", "NotIn", "DoesNotExist", "Equal", "Gt", "Lt"),
    "finalizers": ("example.com/a", "kubernetes.io/pvc-protection"),
    "kind": ("Pod", "Node", "Deployment"),
    "apiVersion": ("v1", "apps/v1"),
    "phase": ("Pending", "Running", "Succeeded", "Failed", "Bound", "Available"),
}
_ANNOTATIONS: Final = (
    *("kubesched.io/devices", "batch.kubernetes.io/job-completion-index", "controller.kubernetes.io/pod-deletion-cost"),
    *("deployment.kubernetes.io/revision", "volume.kubernetes.io/selected-node", "example.com/a"),
)


@dataclass
class Resource:
    """A resource as discovery tells it: where it is, its subresources, its schema."""

    path: str
    plural: str
    kind: str
    api_version: str
    namespaced: bool
    is_listed: bool
    schema: Data
    subresources: list[str] = field(default_factory=list)

    def collection(self) -> str:
        return f"{self.path}/namespaces/default/{self.plural}" if self.namespaced else f"{self.path}/{self.plural}"


async def resources_of(api: Api) -> tuple[list[Resource], Data]:
    """The resources of a server, and all its schemas."""
    found: list[Resource] = []
    schemas: Data = {}
    for path in (await api.get("/openapi/v3")).data["paths"]:
        if not path.endswith(("v1", "v2", "v1beta1", "v1beta2", "v1alpha1", "v1alpha3")):
            continue
        known = (await api.get(f"/openapi/v3/{path}")).data["components"]["schemas"]
        schemas |= known
        by_kind = {
            (one["group"], one["version"], one["kind"]): schema
            for schema in known.values()
            for one in schema.get("x-kubernetes-group-version-kind", ())
        }
        listed = (await api.get(f"/{path}")).data
        group, _, version = listed["groupVersion"].rpartition("/")
        for row in listed["resources"]:
            owner, _, subresource = row["name"].partition("/")
            schema = by_kind.get((group, version, row["kind"]))
            if subresource:
                found[-1 if found[-1].plural == owner else 0].subresources.append(subresource)
            elif "create" in row["verbs"]:
                place = f"/{path}"
                is_listed = "list" in row["verbs"]
                about = (row["kind"], listed["groupVersion"], row["namespaced"], is_listed)
                found.append(Resource(place, owner, *about, schema or {}))
    return found, schemas


class Maker:
    """Values by a schema."""

    def __init__(self, random: Random, schemas: Data) -> None:
        self._random = random
        self._schemas = schemas

    def object(self, resource: Resource) -> Data:
        """An object of a resource, as good as its schema says."""
        made = self.value(resource.schema, "", 0)
        data: Data = made if isinstance(made, dict) else {}
        metadata = data.get("metadata") if isinstance(data.get("metadata"), dict) else {}
        kept = {key: metadata[key] for key in ("labels", "annotations", "finalizers") if metadata and key in metadata}
        name = self._random.choice("ab")
        data |= {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {**kept, "name": name}}
        return data

    def value(self, schema: Data, name: str, depth: int) -> Any:
        """A value that a schema allows, mostly."""
        draw = self._random
        if "$ref" in schema:
            return self.value(self._schemas.get(schema["$ref"].removeprefix(_REF), {}), name, depth)
        if "allOf" in schema:
            return self.value(schema["allOf"][0], name, depth)
        if schema.get("enum") and draw.random() < 0.95:
            return draw.choice(schema["enum"])
        if name in _BY_NAME and schema.get("type") in ("string", "integer") and draw.random() < 0.8:
            return draw.choice(_BY_NAME[name])
        match schema.get("type"):
            case "object":
                return self._object(schema, name, depth)
            case "array":
                count = draw.choice((0, 1, 1, 1, 2, 3)) if depth < 9 else 0
                return [self.value(schema.get("items", {}), name, depth + 1) for _ in range(count)]
            case "boolean":
                return draw.random() < 0.5
            case "integer" | "number":
                low, high = schema.get("minimum"), schema.get("maximum")
                if low is not None and high is not None and draw.random() < 0.7:
                    return draw.randint(low, min(high, low + 1000))
                return draw.choice((0, 1, 2, 3, 5, 30, draw.choice(_HUGE)))
            case "string":
                return self._text(schema, name)
        return draw.choice((1, "a", {"a": 1}, [1], "25%", draw.choice(_TEXTS)))

    def _text(self, schema: Data, name: str) -> str:
        draw = self._random
        if schema.get("format") == "date-time" or name.endswith("Time"):
            return draw.choice(_TIMES)
        if name in ("requests", "limits", "capacity", "allocatable", "hard", "value", "min", "max", "default"):
            return draw.choice(_QUANTITIES)
        return draw.choice(_NAMES) if draw.random() < 0.5 else draw.choice(_TEXTS)

    def _object(self, schema: Data, name: str, depth: int) -> Data:
        draw, found = self._random, Data()
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            keys = _ANNOTATIONS if name == "annotations" else ("cpu", "memory", "a", "example.com/gpu", "app", "pods")
            return {draw.choice(keys): self.value(extra, name, depth + 1) for _ in range(draw.choice((0, 1, 1, 2)))}
        required = schema.get("required", ())
        likely = (0.9, 0.45, 0.3, 0.2, 0.15, 0.1, 0.05)[min(depth, 6)]
        for member, inner in schema.get("properties", {}).items():
            wanted = member in required or member in ("spec", "containers", "template", "selector", "requests")
            if draw.random() < (0.95 if wanted and depth < 12 else likely):
                found[member] = self.value(inner, member, depth + 1)
        return found


def good_objects() -> dict[str, Data]:
    """Objects that controllers, kubelets and the scheduler work with, by the plural of their kind."""
    labels = {"app": "a"}
    container: Data = {"name": "a", "image": "nginx", "resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}}
    pod_spec: Data = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    template: Data = {"metadata": {"labels": labels}, "spec": pod_spec}
    once: Data = {"metadata": {"labels": labels}, "spec": {**pod_spec, "restartPolicy": "Never"}}
    selected: Data = {"selector": {"matchLabels": labels}, "template": template}
    claim: Data = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "a",
    }
    request: Data = {"requests": [{"name": "a", "exactly": {"deviceClassName": "a"}}]}
    pool: Data = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    job: Data = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "template": once}
    specs: dict[str, Data] = {
        "pods": pod_spec,
        "deployments": {"replicas": 2, **selected},
        "replicasets": {"replicas": 2, **selected},
        "statefulsets": {"replicas": 2, "serviceName": "a", **selected, "volumeClaimTemplates": [{"metadata": {"name": "a"}, "spec": claim}]},
        "daemonsets": selected,
        "replicationcontrollers": {"replicas": 1, "selector": labels, "template": template},
        "jobs": job,
        "cronjobs": {"schedule": "* * * * *", "jobTemplate": {"spec": job}},
        "persistentvolumeclaims": claim,
        "persistentvolumes": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}, "storageClassName": "a"},
        "services": {"selector": labels, "ports": [{"port": 80}]},
        "poddisruptionbudgets": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        "resourceclaims": {"devices": request},
        "resourceclaimtemplates": {"spec": {"devices": request}},
        "deviceclasses": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
        "resourceslices": {"driver": "gpu.example.com", "pool": pool, "nodeName": "n0", "devices": [{"name": "a", "attributes": {"x": {"int": 1}}, "capacity": {"memory": {"value": "1Gi"}}}]},
        "resourcequotas": {"hard": {"pods": "1000"}},
        "limitranges": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
        "leases": {"holderIdentity": "a"},
        "nodes": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "csinodes": {"drivers": [{"name": "a", "nodeID": "n0", "allocatable": {"count": 2}}]},
        "widgets": {"size": 1},
    }  # fmt: skip
    rest: dict[str, Data] = {
        "configmaps": {"data": {"a": "b"}},
        "secrets": {"data": {"a": "YQ=="}},
        "priorityclasses": {"value": 10},
        "runtimeclasses": {"handler": "a", "overhead": {"podFixed": {"cpu": "1m"}}},
        "storageclasses": {"provisioner": "a", "volumeBindingMode": "WaitForFirstConsumer"},
        "endpointslices": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]},
    }
    found = {plural: {"spec": spec} for plural, spec in specs.items()} | rest
    found["nodes"]["status"] = {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}
    found["nodes"]["metadata"] = {
        "annotations": {"kubesched.io/devices": "[{driver: gpu.example.com, devices: [{name: gpu, count: 2}]}]"}
    }
    return found


class Mutator:
    """Makes plain data bad in a place or several."""

    def __init__(self, random: Random, maker: Maker) -> None:
        self._random = random
        self._maker = maker

    def mutate(self, data: Any, schema: Data) -> Any:
        """A copy with some changes; ``schema`` is what parts of it are drawn by again."""
        data = _copied(data)
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 4))):
            holders = [one for one in islice(_holders(data), 500) if one]
            if not holders:
                return self.junk()
            # Deep places are many; each depth is as likely.
            holder = self._random.choice(holders[: self._random.choice((2, 10, len(holders)))])
            key: Any = self._random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            # Parts that are in several places would all change with the next one, and the whole would grow without bound.
            holder[key] = _copied(self._changed(holder[key], str(key)))
            if isinstance(holder, dict) and self._random.random() < 0.1:
                holder[self._random.choice(("", "x", "$patch", "é", "x" * 5000, "a/b", "metadata"))] = self.junk()
        return data

    def _changed(self, value: Any, name: str) -> Any:
        draw, most = self._random, 1 + 200_000 // len(msgspec.json.encode(value))
        match draw.randrange(8):
            case 0:
                return None
            case 1 if isinstance(value, list):
                return value * min(draw.choice((2, 100, 3000)), most)
            case 2 if isinstance(value, list):
                return [*value, *value[:1], self.junk()]
            case 3 if isinstance(value, dict):
                count = min(draw.choice((1, 50, 3000)), most)
                return {**value, **{f"k{index}": draw.choice(list(value.values()) or [1]) for index in range(count)}}
            case 4 if name in _BY_NAME:
                return draw.choice(_BY_NAME[name])
            case 5:
                return self._nested(value)
            case _:
                return self.junk() if not isinstance(value, str) else draw.choice((*_TEXTS, *_QUANTITIES, *_TIMES))

    def _nested(self, value: Any) -> Any:
        for _ in range(self._random.choice((1, 3, 60, 210))):
            value = [value] if self._random.random() < 0.5 else {self._random.choice(("a", "spec", "items")): value}
        return value

    def junk(self) -> Any:
        """A value of any type."""
        draw = self._random
        return draw.choice(
            (
                None,
                True,
                False,
                draw.choice(_HUGE),
                0.5,
                -1e308,
                draw.choice(_TEXTS),
                draw.choice(_QUANTITIES),
                [],
                {},
                [[]],
                [None],
                {"": None},
                {"a": {"b": []}},
            )
        )


def _copied(data: Any) -> Any:
    """Return a copy of the data in which no part is in two places."""
    return msgspec.json.decode(msgspec.json.encode(data))


def _holders(data: Any) -> Iterator[Any]:
    """The objects and lists in data, those above first."""
    level = [data] if isinstance(data, dict | list) else []
    while level:
        yield from level
        level = [
            one
            for holder in level
            for one in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(one, dict | list)
        ]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    raw: bytes
    content_type: str
    query: dict[str, str]


class Requests:
    """An endless stream of requests on the resources of a server."""

    def __init__(self, random: Random, resources: list[Resource], schemas: Data) -> None:
        self._random = random
        self._resources = [one for one in resources if one.plural != "events" or one.path == "/api/v1"]
        self._maker = Maker(random, schemas)
        self._mutator = Mutator(random, self._maker)
        self._good = good_objects()
        self._known = [one for one in self._resources if one.plural in self._good]

    def first(self) -> Iterator[Request]:
        """Good objects, which later requests change."""
        for resource in self._known:
            for name in "ab":
                body = self._named(resource, name)
                yield Request("POST", resource.collection(), msgspec.json.encode(body), "application/json", {})

    def _named(self, resource: Resource, name: str) -> Data:
        good = self._good[resource.plural]
        metadata = {**good.get("metadata", {}), "name": name}
        return {"apiVersion": resource.api_version, "kind": resource.kind, **good, "metadata": metadata}

    def next(self) -> Request:
        draw = self._random
        resource = draw.choice(self._resources if draw.random() < 0.3 else self._known)
        path, body = resource.collection(), self._body(resource)
        metadata = body.get("metadata") if isinstance(body, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        item = f"{path}/{name if name in ('a', 'b') else draw.choice('ab')}"
        ways: tuple[tuple[int, Callable[[str, str, Any, Resource], Request]], ...] = (
            (8, self._post),
            (4, self._put),
            (10, self._patch),
            (2, self._subresource),
            (1, self._read),
            (1, self._delete),
        )
        way = draw.choices([one for _, one in ways], [weight for weight, _ in ways])[0]
        return way(path, item, body, resource)

    def _body(self, resource: Resource) -> Any:
        draw = self._random
        if resource.plural not in self._good or draw.random() < 0.3:
            body = self._maker.object(resource)
        else:
            body = self._named(resource, draw.choice("ab"))
            if draw.random() < 0.5:
                drawn = self._maker.object(resource)
                part = draw.choice(list(drawn))
                if part not in ("metadata", "apiVersion", "kind") and isinstance(drawn[part], dict):
                    extra = {key: value for key, value in drawn[part].items() if draw.random() < 0.3}
                    body = {**body, part: {**body.get(part, {}), **extra}}
        return self._mutator.mutate(body, resource.schema)

    def _query(self, **more: str) -> dict[str, str]:
        draw = self._random
        if draw.random() < 0.15:
            more["dryRun"] = "All"
        if draw.random() < 0.3:
            more["fieldValidation"] = draw.choice(("Strict", "Warn", "Ignore"))
        return more

    def _post(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        type_ = "application/yaml" if self._random.random() < 0.05 else "application/json"
        return Request("POST", path, msgspec.json.encode(body), type_, self._query())

    def _put(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        item += self._random.choice(("", "", "/status"))
        return Request("PUT", item, msgspec.json.encode(body), "application/json", self._query())

    def _patch(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        draw = self._random
        item += draw.choice(("", "", "/status"))
        kind = draw.choice((JSON_PATCH, MERGE, STRATEGIC, APPLY))
        if kind == APPLY:
            query = self._query(fieldManager=draw.choice(("a", "b")), force=draw.choice(("true", "false")))
            return Request("PATCH", item, msgspec.json.encode(body), kind, query)
        if kind == JSON_PATCH:
            body = [self._operation(body) for _ in range(draw.choice((1, 2, 5)))]
        elif isinstance(body, dict):
            body = {key: value for key, value in body.items() if draw.random() < 0.6}
            holders = [one for one in islice(_holders(body), 100) if isinstance(one, dict)]
            if kind == STRATEGIC and holders:
                holder = draw.choice(holders)
                order = f"$setElementOrder/{draw.choice(('containers', 'taints', 'ports', 'x'))}"
                key = draw.choice(("$patch", "$retainKeys", "$deleteFromPrimitiveList/finalizers", order))
                holder[key] = draw.choice(
                    ("delete", "replace", "merge", [], ["a"], [{"name": "a"}], None, self._mutator.junk())
                )
        return Request("PATCH", item, msgspec.json.encode(body), kind, self._query())

    def _operation(self, body: Any) -> Any:
        draw, path, value = self._random, "", body
        while isinstance(value, dict | list) and value and draw.random() < 0.8:
            key = draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
            value, path = value[key], f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"
        operation: Data = {
            "op": draw.choice(("add", "remove", "replace", "move", "copy", "test")),
            "path": path,
            "value": value,
        }
        operation["from"] = draw.choice(("/spec", "/metadata", "", path, "/spec/containers/0"))
        if draw.random() < 0.2:
            operation[draw.choice(("op", "path", "value", "from"))] = self._mutator.junk()
        return operation

    def _subresource(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        draw = self._random
        name = draw.choice(resource.subresources or ["status"])
        bodies: dict[str, Data] = {
            "scale": {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": draw.choice((0, 1, 3, 2_000_000_000))}},
            "binding": {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": item[-1]}, "target": {"kind": "Node", "name": "n0"}},
            "eviction": {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": item[-1]}},
            "token": {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": ["a"]}},
        }  # fmt: skip
        body = self._mutator.mutate(bodies[name], {}) if name in bodies else body
        method = draw.choice(("POST", "PUT", "PATCH", "GET"))
        raw = msgspec.json.encode(body) if method != "GET" else b""
        return Request(method, f"{item}/{name}", raw, MERGE if method == "PATCH" else "application/json", self._query())

    def _read(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        draw = self._random
        query = {
            "labelSelector": draw.choice(("", "app=a", "app in (a,b),!x", "a" + " " * 5000 + "!", ",".join(["a!=b"] * 400), "(")),
            "fieldSelector": draw.choice(("", "metadata.name=a", "metadata.name!=a,metadata.namespace=default", "x=y")),
            "limit": draw.choice(("0", "1", "5")),
        }  # fmt: skip
        return Request("GET", draw.choice((path, item)), b"", "", query)

    def _delete(self, path: str, item: str, body: Any, resource: Resource) -> Request:
        options = self._mutator.mutate({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}, {})
        return Request("DELETE", item, msgspec.json.encode(options), "application/json", {})
