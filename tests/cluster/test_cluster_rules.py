"""Defaults and values of the built-in kinds, as an API server of 1.36 gives and refuses them."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_world import a_pod, a_store, kind, refused, running

from kubesched.api.kinds import KINDS, NAMESPACES, NODES, PODS, Kind
from kubesched.api.wire import ApiError
from kubesched.cluster.admission import Causes
from kubesched.cluster.admission.checks import READ, check_conditions
from kubesched.cluster.schema import field_rules, type_rules, types
from kubesched.cluster.store import Store

Data = dict[str, Any]

CLAIMS, VOLUMES = kind("persistentvolumeclaims"), kind("persistentvolumes")
DEPLOYMENTS, STATEFUL_SETS = kind("deployments", "apps"), kind("statefulsets", "apps")
DAEMON_SETS, JOBS, CRON_JOBS = kind("daemonsets", "apps"), kind("jobs", "batch"), kind("cronjobs", "batch")
SERVICES, SECRETS, CONFIG_MAPS = kind("services"), kind("secrets"), kind("configmaps")
CSI_NODES = kind("csinodes", "storage.k8s.io")
ENDPOINT_SLICES = kind("endpointslices", "discovery.k8s.io")
BUDGETS = kind("poddisruptionbudgets", "policy")
CAPACITIES = kind("csistoragecapacities", "storage.k8s.io")
RESOURCE_CLAIMS = kind("resourceclaims", "resource.k8s.io")
TEMPLATES, SLICES = kind("resourceclaimtemplates", "resource.k8s.io"), kind("resourceslices", "resource.k8s.io")
QUOTAS, LIMITS, POLICIES = kind("resourcequotas"), kind("limitranges"), kind("networkpolicies", "networking.k8s.io")
AUTOSCALERS = kind("horizontalpodautoscalers", "autoscaling")

INGRESSES = kind("ingresses", "networking.k8s.io")

LABELS = {"app": "a"}
SELECTOR = {"matchLabels": LABELS}


def template(**spec: Any) -> Data:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}


def workload(**spec: Any) -> Data:
    return {"spec": {"selector": SELECTOR, "template": template(), **spec}}


def claim(**spec: Any) -> Data:
    return {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def volume(**spec: Any) -> Data:
    return {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}, **spec}
    }


def local(terms: Any) -> Data:
    one = volume(local={"path": "/d"}, nodeAffinity={"required": {"nodeSelectorTerms": terms}})
    del one["spec"]["hostPath"]
    return one


def cron_job(**spec: Any) -> Data:
    job = {"template": {"spec": {**template()["spec"], "restartPolicy": "Never"}}}
    return {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job}, **spec}}


def devices(**exactly: Any) -> Data:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}]}}


def pod(**container: Any) -> Data:
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}]}}


def indexed(**spec: Any) -> Data:
    return {"spec": {"template": template(restartPolicy="Never"), "completionMode": "Indexed", **spec}}


def scoped(**expression: Any) -> Data:
    return {"spec": {"scopeSelector": {"matchExpressions": [expression]}}}


def a_slice(**device: Any) -> Data:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": [{"name": "d", **device}]}}


def level(whole: Data, each: Data) -> Data:
    """A pod with resources of its own and of its two containers."""
    return {"spec": {"resources": whole, "containers": [{"name": n, "image": "i", "resources": each} for n in "ab"]}}


def ingress(host: str) -> Data:
    backend = {"service": {"name": "s", "port": {"number": 1}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    return {"spec": {"rules": [{"host": host, "http": {"paths": [path]}}]}}


def make(store: Store, of: Kind, rest: Data, name: str = "x", namespace: str = "default") -> Data:
    given = {"metadata": {"name": name}, **rest}
    made: Data = store.create(of, namespace if of.namespaced else "", given).data()
    return made


REFUSED: list[tuple[str, Kind, Data, str]] = [
    ("strategy", DEPLOYMENTS, workload(strategy={"type": "Blue"}), 'spec.strategy.type: Unsupported value: "Blue": supported values: "Recreate", "RollingUpdate"'),
    ("recreate and roll", DEPLOYMENTS, workload(strategy={"type": "Recreate", "rollingUpdate": {}}), "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"),
    ("no progress", DEPLOYMENTS, workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}), 'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0'),
    ("surge", DEPLOYMENTS, workload(strategy={"rollingUpdate": {"maxSurge": "much"}}), 'spec.strategy.rollingUpdate.maxSurge: Invalid value: "much": a valid percent string must be a numeric string followed by'),
    ("negative", DEPLOYMENTS, workload(replicas=-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    ("deadline", DEPLOYMENTS, workload(minReadySeconds=600), "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"),
    ("everything selected", DEPLOYMENTS, workload(selector={}), "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
    ("once", DEPLOYMENTS, workload(template=template(restartPolicy="Never")), 'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'),
    ("for a while", DEPLOYMENTS, workload(template=template(activeDeadlineSeconds=5)), "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"),
    ("mount", DEPLOYMENTS, workload(template=template(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}])), 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"'),
    ("name of a service", STATEFUL_SETS, workload(serviceName="A_b"), 'spec.serviceName: Invalid value: "A_b": a lowercase RFC 1123 label'),
    ("order", STATEFUL_SETS, workload(podManagementPolicy="Any"), 'spec.podManagementPolicy: Unsupported value: "Any": supported values: "OrderedReady", "Parallel"'),
    ("daemons", DAEMON_SETS, workload(updateStrategy={"rollingUpdate": {"maxUnavailable": "101%"}}), "must not be greater than 100%"),
    ("restarts", JOBS, {"spec": {"template": template()}}, 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    ("no template", JOBS, {"spec": {}}, "spec.template.spec.containers: Required value"),
    ("indexed", JOBS, {"spec": {"template": template(restartPolicy="Never"), "parallelism": 2, "completionMode": "Indexed"}}, "spec.completions: Required value: when completion mode is Indexed"),
    ("schedule", CRON_JOBS, cron_job(schedule="every day"), 'spec.schedule: Invalid value: "every day": expected exactly 5 fields, found 2: [every day]'),
    ("minute", CRON_JOBS, cron_job(schedule="61 * * * *"), 'spec.schedule: Invalid value: "61 * * * *": minute: end of range (61) above maximum (59): 61'),
    ("zone in the schedule", CRON_JOBS, cron_job(schedule="TZ=UTC * * * * *"), "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
    ("zone", CRON_JOBS, cron_job(timeZone="Mars/Olympus"), 'spec.timeZone: Invalid value: "Mars/Olympus": unknown time zone Mars/Olympus'),
    ("overlap", CRON_JOBS, cron_job(concurrencyPolicy="Queue"), 'spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"'),
    ("negative budget", BUDGETS, {"spec": {"minAvailable": -1}}, "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
    ("budget of text", BUDGETS, {"spec": {"maxUnavailable": "most"}}, "spec.maxUnavailable: Invalid value"),
    ("more than all", BUDGETS, {"spec": {"maxUnavailable": "120%"}}, 'spec.maxUnavailable: Invalid value: "120%": must not be greater than 100%'),
    ("eviction policy", BUDGETS, {"spec": {"unhealthyPodEvictionPolicy": "Never"}}, 'supported values: "AlwaysAllow", "IfHealthyBudget"'),
    ("access mode", CLAIMS, claim(accessModes=["Mine"]), 'spec.accessModes: Unsupported value: "Mine": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'),
    ("no access mode", CLAIMS, claim(accessModes=[]), "spec.accessModes: Required value: at least 1 access mode is required"),
    ("only one", CLAIMS, claim(accessModes=["ReadWriteOncePod", "ReadWriteMany"]), "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"),
    ("volume mode", CLAIMS, claim(volumeMode="Tape"), 'spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"'),
    ("port", SERVICES, {"spec": {"ports": [{"port": 0}]}}, "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    ("no ports", SERVICES, {"spec": {"selector": LABELS}}, "spec.ports: Required value"),
    ("unnamed ports", SERVICES, {"spec": {"ports": [{"port": 1}, {"port": 2}]}}, "spec.ports[0].name: Required value, spec.ports[1].name: Required value"),
    ("one port twice", SERVICES, {"spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}}, "spec.ports[1]: Duplicate value"),
    ("protocol", SERVICES, {"spec": {"ports": [{"port": 1, "protocol": "ICMP"}]}}, 'spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'),
    ("type", SERVICES, {"spec": {"type": "Magic", "ports": [{"port": 1}]}}, 'spec.type: Unsupported value: "Magic": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"'),
    ("node port", SERVICES, {"spec": {"ports": [{"port": 1, "nodePort": 30000}]}}, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"),
    ("no name outside", SERVICES, {"spec": {"type": "ExternalName"}}, "spec.externalName: Required value"),
    ("key", SECRETS, {"data": {"a b": "YQ=="}}, "data[a b]: Invalid value: \"a b\": a valid config key"),
    ("key file", SECRETS, {"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}, "data[tls.key]: Required value"),
    ("autoscaler", AUTOSCALERS, {"spec": {"minReplicas": 3, "maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}, "spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`"),
    ("no target", AUTOSCALERS, {"spec": {"maxReplicas": 2}}, "spec.scaleTargetRef: Required value"),
    ("no source", VOLUMES, {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}, "spec: Required value: must specify a volume type"),
    ("two sources", VOLUMES, volume(nfs={"server": "s", "path": "/p"}), "spec.nfs: Forbidden: may not specify more than 1 volume type"),
    ("no capacity", VOLUMES, {"spec": {"accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/"}}}, "spec.capacity: Required value"),
    ("no terms", VOLUMES, local([]), "spec.nodeAffinity.required.nodeSelectorTerms: Required value: must have at least one node selector term"),
    ("no affinity", VOLUMES, {"spec": {**local([])["spec"], "nodeAffinity": None}}, "spec.nodeAffinity: Required value: Local volume requires node affinity"),
    ("nothing required", VOLUMES, volume(nodeAffinity={}), "spec.nodeAffinity.required: Required value: must specify required node constraints"),
    ("operator", VOLUMES, local([{"matchExpressions": [{"key": "a", "operator": "Near"}]}]), "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].operator"),
    ("field", VOLUMES, local([{"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}]), 'nodeSelectorTerms[0].matchFields[0].key: Invalid value: "spec.x": not a valid field selector key'),
    ("no class", CAPACITIES, {"capacity": "1Gi"}, "storageClassName: Required value"),
    ("class", CAPACITIES, {"storageClassName": "A_b"}, 'storageClassName: Invalid value: "A_b": a lowercase RFC 1123 subdomain'),
    ("negative capacity", CAPACITIES, {"storageClassName": "a", "capacity": "-1"}, 'capacity: Invalid value: "-1": must be greater than or equal to 0'),
    ("topology", CAPACITIES, {"storageClassName": "a", "nodeTopology": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "nodeTopology.matchExpressions[0].operator"),
    ("admin", RESOURCE_CLAIMS, {"spec": devices(adminAccess=True)}, "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"),
    ("admin template", TEMPLATES, {"spec": {"spec": devices(adminAccess=True)}}, "Forbidden: admin access to devices requires the"),
    ("negative quota", QUOTAS, {"spec": {"hard": {"pods": "-1"}}}, 'spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'),
    ("limits in disorder", LIMITS, {"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}}, 'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'),
    ("default over the limit", LIMITS, {"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}]}}, 'spec.limits[0].default[cpu]: Invalid value: "2": default value 2 is greater than max value 1'),
    ("policy type", POLICIES, {"spec": {"podSelector": {}, "policyTypes": ["Sideways"]}}, 'spec.policyTypes: Unsupported value: "Sideways": supported values: "Egress", "Ingress"'),
    ("empty probe", PODS, pod(livenessProbe={}), "spec.containers[0].livenessProbe: Required value: must specify a handler type"),
    ("two probes in one", PODS, pod(startupProbe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}}), "spec.containers[0].startupProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"),
    ("no command", PODS, pod(readinessProbe={"exec": {}}), "spec.containers[0].readinessProbe.exec.command: Required value"),
    ("alive twice", PODS, pod(livenessProbe={"exec": {"command": ["a"]}, "successThreshold": 2}), "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"),
    ("grace of readiness", PODS, pod(readinessProbe={"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 5}), "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"),
    ("no grace", PODS, pod(livenessProbe={"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 0}), "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"),
    ("hook", PODS, pod(lifecycle={"preStop": {}}), "spec.containers[0].lifecycle.preStop: Required value: must specify a handler type"),
    ("probe of an init container", PODS, {"spec": {**pod()["spec"], "initContainers": [{"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["a"]}}}]}}, "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"),
    ("probe", CRON_JOBS, cron_job(jobTemplate={"spec": {"template": template(restartPolicy="Never", containers=[{"name": "c", "image": "i", "livenessProbe": {}}])}}), "spec.jobTemplate.spec.template.spec.containers[0].livenessProbe: Required value: must specify a handler type"),
    ("scope", QUOTAS, {"spec": {"scopes": ["Nice"]}}, 'spec.scopes: Invalid value: ["Nice"]: unsupported scope'),
    ("scope of storage", QUOTAS, {"spec": {"scopes": ["Terminating"], "hard": {"requests.storage": "1Gi"}}}, 'spec.scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource'),
    ("best effort of cpu", QUOTAS, {"spec": {"scopes": ["BestEffort"], "hard": {"cpu": "1"}}}, "unsupported scope applied to resource"),
    ("every effort", QUOTAS, {"spec": {"scopes": ["BestEffort", "NotBestEffort"]}}, "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"),
    ("scope name", QUOTAS, scoped(scopeName="Nice", operator="Exists"), 'spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Nice": unsupported scope'),
    ("scope operator", QUOTAS, scoped(scopeName="BestEffort", operator="In", values=["a"]), "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exist' when scope is any of"),
    ("scope values", QUOTAS, scoped(scopeName="PriorityClass", operator="In"), "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In'"),
    ("scope without values", QUOTAS, scoped(scopeName="PriorityClass", operator="Exists", values=["a"]), "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
    ("range", NODES, {"spec": {"podCIDR": "10.0.0.0"}}, 'spec.podCIDRs[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'),
    ("two ranges", NODES, {"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}, "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for each IP family"),
    ("too many at once", JOBS, indexed(completions=200_000, parallelism=100_001), "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"),
    ("many indexes with limits", JOBS, indexed(completions=200_000, parallelism=10_001, backoffLimitPerIndex=1), "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000"),
    ("many indexes", JOBS, indexed(completions=100_001, backoffLimitPerIndex=1), "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"),
    ("more failures than indexes", JOBS, indexed(completions=2, backoffLimitPerIndex=1, maxFailedIndexes=3), "spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions"),
    ("selector of its own", JOBS, {"spec": {"selector": SELECTOR, "template": template(restartPolicy="Never")}}, 'spec.selector: Invalid value: {"matchLabels":{"app":"a"}}: `selector` not auto-generated'),
    ("selector of a later Job", CRON_JOBS, cron_job(jobTemplate={"spec": {"selector": SELECTOR, "template": template(restartPolicy="Never")}}), 'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"app":"a"}}: `selector` will be auto-generated'),
    ("manual selector of a later Job", CRON_JOBS, cron_job(jobTemplate={"spec": {"manualSelector": True, "template": template(restartPolicy="Never")}}), 'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"'),
    ("no address", ENDPOINT_SLICES, {"addressType": "IPv4", "endpoints": [{}]}, "endpoints[0].addresses: Required value: must contain at least 1 address"),
    ("driver twice", CSI_NODES, {"spec": {"drivers": [{"name": "d", "nodeID": "n"}] * 2}}, 'spec.drivers[1].name: Duplicate value: "d"'),
    ("address", ENDPOINT_SLICES, {"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}]}, 'endpoints[0].addresses[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'),
    ("address of the other family", ENDPOINT_SLICES, {"addressType": "IPv6", "endpoints": [{"addresses": ["::1", "10.0.0.1"]}]}, 'endpoints[0].addresses[1]: Invalid value: "10.0.0.1": must be an IPv6 address'),
    ("value from two places", PODS, pod(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]), 'spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty'),
    ("two ports of a name", PODS, pod(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}, {"containerPort": 3}, {"containerPort": 4}]), 'spec.containers[0].ports[1].name: Duplicate value: "a"'),
    ("no DNS", PODS, {"spec": template(dnsPolicy="None")["spec"]}, "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
    ("no DNS server", PODS, {"spec": template(dnsPolicy="None", dnsConfig={})["spec"]}, "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"),
    ("debug container", PODS, {"spec": template(ephemeralContainers=[{"name": "d", "image": "i"}])["spec"]}, "spec.ephemeralContainers: Forbidden: cannot be set on create"),
    ("debug container in a template", DEPLOYMENTS, workload(template=template(ephemeralContainers=[{"name": "d", "image": "i"}])), "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"),
    ("limit of an index", JOBS, indexed(completionMode="NonIndexed", backoffLimitPerIndex=1), "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"),
    ("reference", RESOURCE_CLAIMS, {"spec": {"devices": {**devices()["devices"], "constraints": [{"requests": ["x"], "matchAttribute": "a/b"}]}}}, 'spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim'),
    ("domain", RESOURCE_CLAIMS, {"spec": {"devices": {**devices()["devices"], "constraints": [{"matchAttribute": "b"}]}}}, 'spec.devices.constraints[0].matchAttribute: Invalid value: "b": must include a domain'),
    ("no constraint", RESOURCE_CLAIMS, {"spec": {"devices": {**devices()["devices"], "constraints": [{}]}}}, "spec.devices.constraints[0]: Required value: exactly one of `matchAttribute`, or `distinctAttribute` is required"),
    ("no request", RESOURCE_CLAIMS, {"spec": {"devices": {"requests": [{"name": "r"}]}}}, "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"),
    ("one name twice", RESOURCE_CLAIMS, {"spec": {"devices": {"requests": devices()["devices"]["requests"] * 2}}}, 'spec.devices.requests[1].name: Duplicate value: "r"'),
    ("all of a number", TEMPLATES, {"spec": {"spec": devices(allocationMode="All", count=2)}}, "spec.spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"),
    ("expression", RESOURCE_CLAIMS, {"spec": devices(selectors=[{"cel": {"expression": "device."}}])}, 'spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid value: "device."'),
    ("toleration", RESOURCE_CLAIMS, {"spec": devices(tolerations=[{"operator": "Exists", "value": "v"}])}, 'spec.devices.requests[0].exactly.tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`'),
    ("nowhere", SLICES, {"spec": {**a_slice()["spec"], "nodeName": None}}, "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"),
    ("less than its containers", PODS, level({"requests": {"cpu": "1"}}, {"requests": {"cpu": "600m"}}), 'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1200m'),
    ("lower than a container's", PODS, level({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "2Gi"}}), 'spec.containers[0].resources.limits[memory]: Invalid value: "2Gi": must be less than or equal to pod limits of 1Gi'),
    ("an address as host", INGRESSES, ingress("10.0.0.1"), 'spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'),
    ("capitals", INGRESSES, ingress("A.example"), 'spec.rules[0].host: Invalid value: "A.example": a lowercase RFC 1123 subdomain'),
    ("an asterisk inside", INGRESSES, ingress("a.*.example"), 'spec.rules[0].host: Invalid value: "a.*.example": a wildcard DNS-1123 subdomain'),
    ("no version", SLICES, a_slice(attributes={"a": {"version": "1.0"}}), 'spec.devices[0].attributes[a].version: Invalid value: "1.0": must be a string compatible with semver.org spec 2.0.0'),
    ("leading zero", SLICES, a_slice(attributes={"a": {"versions": ["1.0.0", "01.0.0"]}}), 'spec.devices[0].attributes[a].versions[1]: Invalid value: "01.0.0": must be a string compatible'),
    ("two values", SLICES, a_slice(attributes={"a": {"int": 1, "bool": True}}), "spec.devices[0].attributes[a]: Invalid value: "),
    ("long text", SLICES, a_slice(attributes={"a": {"string": "x" * 65}}), "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes"),
    ("taint", SLICES, a_slice(taints=[{"key": "-", "effect": "NoExecute"}]), 'spec.devices[0].taints[0].key: Invalid value: "-": name part must consist of'),
    ("node of a device", SLICES, a_slice(nodeName="n"), "spec.devices[0].nodeName: Invalid value: \"n\": must not be set unless `perDeviceNodeSelection` is set"),
    ("too many", SLICES, {"spec": {**a_slice()["spec"], "devices": [{"name": f"d{number}"} for number in range(129)]}}, "spec.devices: Too many: 129: must have at most 128 items"),
    ("resource", kind("deviceclasses", "resource.k8s.io"), {"spec": {"extendedResourceName": "cpu"}}, 'spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name'),
]  # fmt: skip


@pytest.mark.parametrize(("what", "of", "rest", "text"), REFUSED, ids=[f"{row[1].kind} {row[0]}" for row in REFUSED])
def test_an_object_is_refused_with_field_and_reason(what: str, of: Kind, rest: Data, text: str) -> None:
    with refused(422, "Invalid", text):
        make(a_store(), of, rest)


ACCEPTED: list[tuple[str, Kind, Data]] = [
    ("enough for its containers", PODS, level({"requests": {"cpu": "1200m"}, "limits": {"cpu": "2"}}, {"requests": {"cpu": "600m"}, "limits": {"cpu": "2"}})),
    ("any", INGRESSES, ingress("*.example.com")),
    ("before a release", SLICES, a_slice(attributes={"a": {"version": "1.0.0-beta.1+build.01"}})),
    ("without a service", STATEFUL_SETS, workload()),
    ("headless", SERVICES, {"spec": {"clusterIP": "None", "selector": LABELS}}),
    ("outside", SERVICES, {"spec": {"type": "ExternalName", "externalName": "example.com"}}),
    ("named port", SERVICES, {"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}),
    ("words", CRON_JOBS, cron_job(schedule="@daily", timeZone="Europe/Berlin")),
    ("names", CRON_JOBS, cron_job(schedule="0,30 8-18/2 1 jan-mar MON")),
    ("claimed mount", STATEFUL_SETS, workload(template=template(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]), volumeClaimTemplates=[{"metadata": {"name": "data"}, **claim()}])),
    ("amounts", BUDGETS, {"spec": {"minAvailable": "100%"}}),
    ("local", VOLUMES, local([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}])),
    ("topology", CAPACITIES, {"storageClassName": "a", "capacity": "1Gi", "nodeTopology": SELECTOR}),
    ("probes", PODS, pod(livenessProbe={"grpc": {"port": 1}}, readinessProbe={"exec": {"command": ["a"]}, "successThreshold": 2}, lifecycle={"preStop": {"sleep": {"seconds": 1}}})),
    ("scopes", QUOTAS, {"spec": {"scopes": ["NotTerminating"], "hard": {"pods": "1", "cpu": "1", "count/secrets": "1"}}}),
    ("two families", NODES, {"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}),
    ("as many as may be", JOBS, indexed(completions=2**31 - 1, parallelism=100_000)),
    ("a long secret", SECRETS, {"data": {"a": "YWJj\nZGVm", "b": ""}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "rest", "where"),
    [
        (QUOTAS, {"spec": {"hard": {"pods": "many"}}}, "spec.hard.pods"),
        (LIMITS, {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "much"}}]}}, "spec.limits[0].max.cpu"),
        (CAPACITIES, {"storageClassName": "a", "maximumVolumeSize": "big"}, "maximumVolumeSize"),
        (
            RESOURCE_CLAIMS,
            {"spec": devices(capacity={"requests": {"m": "much"}})},
            "spec.devices.requests[0].exactly.capacity.requests.m",
        ),
        (SLICES, a_slice(capacity={"example.com/m": {"value": ""}}), "spec.devices[0].capacity[example.com/m].value"),
    ],
)
def test_amounts_that_cannot_be_read(of: Kind, rest: Data, where: str) -> None:
    with refused(400, "BadRequest", f"{where}: quantities must match"):
        make(a_store(), of, rest)


@pytest.mark.parametrize(
    ("of", "rest", "where"),
    [
        (kind("priorityclasses", "scheduling.k8s.io"), {"value": 2**31}, "value"),
        (DEPLOYMENTS, workload(replicas=-(2**31) - 1), "spec.replicas"),
    ],
)
def test_numbers_that_are_too_long_for_their_field(of: Kind, rest: Data, where: str) -> None:
    with refused(400, "BadRequest", f"`{where}`"):
        make(a_store(), of, rest)


@pytest.mark.parametrize(("what", "of", "rest"), ACCEPTED, ids=[f"{row[1].kind} {row[0]}" for row in ACCEPTED])
def test_what_a_real_server_accepts_is_accepted(what: str, of: Kind, rest: Data) -> None:
    assert make(a_store(), of, rest)["kind"] == of.kind


@pytest.mark.parametrize(("text", "byte"), [("!", 0), ("YQ=", 2), ("YWJ", 0), ("YWJjZ", 4), ("YW?j", 2), ("Y===", 1)])
def test_a_secret_that_is_no_base64_cannot_be_decoded(text: str, byte: int) -> None:
    want = f'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte {byte}'
    with refused(400, "BadRequest", want):
        make(a_store(), SECRETS, {"data": {"a": text}})


def at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data[int(part)] if part.isdigit() else data[part]
    return data


DEFAULTS: list[tuple[Kind, Data, dict[str, Any]]] = [
    (RESOURCE_CLAIMS, {"spec": devices(tolerations=[{"key": "k", "value": "v"}])}, {
        "spec.devices.requests.0.exactly.allocationMode": "ExactCount",
        "spec.devices.requests.0.exactly.count": 1,
        "spec.devices.requests.0.exactly.tolerations.0.operator": "Equal",
    }),
    (TEMPLATES, {"spec": {"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "g"}]}]}}}}, {
        "spec.spec.devices.requests.0.firstAvailable.0.allocationMode": "ExactCount",
        "spec.spec.devices.requests.0.firstAvailable.0.count": 1,
    }),
    (DEPLOYMENTS, workload(), {
        "spec.replicas": 1,
        "spec.revisionHistoryLimit": 10,
        "spec.progressDeadlineSeconds": 600,
        "spec.strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "spec.template.spec.dnsPolicy": "ClusterFirst",
        "spec.template.spec.containers.0.imagePullPolicy": "IfNotPresent",
    }),
    (DEPLOYMENTS, workload(strategy={"type": "Recreate"}), {"spec.strategy": {"type": "Recreate"}}),
    (STATEFUL_SETS, workload(), {
        "spec.podManagementPolicy": "OrderedReady",
        "spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "spec.persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }),
    (DAEMON_SETS, workload(), {
        "spec.updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    }),
    (JOBS, {"spec": {"template": template(restartPolicy="Never")}}, {
        "spec.completions": 1,
        "spec.parallelism": 1,
        "spec.backoffLimit": 6,
        "spec.completionMode": "NonIndexed",
        "spec.podReplacementPolicy": "TerminatingOrFailed",
    }),
    (CRON_JOBS, cron_job(), {
        "spec.concurrencyPolicy": "Allow",
        "spec.suspend": False,
        "spec.successfulJobsHistoryLimit": 3,
        "spec.failedJobsHistoryLimit": 1,
    }),
    (SERVICES, {"spec": {"ports": [{"port": 80}]}}, {
        "spec.type": "ClusterIP",
        "spec.sessionAffinity": "None",
        "spec.internalTrafficPolicy": "Cluster",
        "spec.ports.0": {"port": 80, "protocol": "TCP", "targetPort": 80},
    }),
    (PODS, {"spec": {"volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "s"}}], "containers": [
        {"name": "c", "image": "registry:5000/i", "livenessProbe": {"httpGet": {"port": 80}}},
        {"name": "d", "image": "i@sha256:0", "ports": [{"containerPort": 80}]},
    ]}}, {
        "spec.volumes.0.emptyDir": {},
        "spec.volumes.1.secret.defaultMode": 420,
        "spec.enableServiceLinks": True,
        "spec.securityContext": {},
        "spec.containers.0.imagePullPolicy": "Always",
        "spec.containers.1.imagePullPolicy": "IfNotPresent",
        "spec.containers.0.livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
        "spec.containers.1.ports.0.protocol": "TCP",
    }),
    (kind("networkpolicies", "networking.k8s.io"), {"spec": {"podSelector": {}, "egress": [{}]}}, {
        "spec.policyTypes": ["Ingress", "Egress"],
    }),
    (JOBS, {"spec": {"template": template(restartPolicy="Never"), "completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}}, {
        "spec.backoffLimit": 2**31 - 1,
        "spec.parallelism": 1,
    }),
    (kind("csidrivers", "storage.k8s.io"), {"spec": {}}, {
        "spec.attachRequired": True,
        "spec.volumeLifecycleModes": ["Persistent"],
        "spec.fsGroupPolicy": "ReadWriteOnceWithFSType",
    }),
    (kind("rolebindings", "rbac.authorization.k8s.io"), {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}, {
        "roleRef.apiGroup": "rbac.authorization.k8s.io",
        "subjects.0.apiGroup": "rbac.authorization.k8s.io",
    }),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "rest", "want"), DEFAULTS, ids=[f"{row[0].kind} {index}" for index, row in enumerate(DEFAULTS)]
)
def test_absent_fields_have_the_defaults_of_a_real_server(of: Kind, rest: Data, want: dict[str, Any]) -> None:
    store = a_store()
    made = make(store, of, rest)
    assert {path: at(made, path) for path in want} == want
    written = {**rest, "metadata": {"name": "x", "resourceVersion": made["metadata"]["resourceVersion"]}}
    again = store.update(of, "default" if of.namespaced else "", "x", written)
    assert again.resource_version == int(made["metadata"]["resourceVersion"]), "defaults are no change"


def test_claims_may_ask_for_admin_access_in_a_namespace_that_allows_it() -> None:
    store = a_store()
    label = {"resource.kubernetes.io/admin-access": "true"}
    store.create(NAMESPACES, "", {"metadata": {"name": "drivers", "labels": label}})
    assert make(store, RESOURCE_CLAIMS, {"spec": devices(adminAccess=True)}, namespace="drivers")
    assert make(store, RESOURCE_CLAIMS, {"spec": devices(adminAccess=False)})


def test_unknown_fields_are_not_taken_for_those_of_other_kinds() -> None:
    store = a_store()
    for anything in ("x", True, [None, -1], 5):
        name = f"x{type(anything).__name__}"
        make(store, kind("podtemplates"), {"template": template(), "spec": anything}, name)
        make(store, RESOURCE_CLAIMS, {"spec": {**devices(), "spec": anything}}, name)
    with pytest.raises(ApiError, match="admin access"):
        make(store, RESOURCE_CLAIMS, {"spec": {**devices(adminAccess=True), "spec": devices()}})


# -- updates -----------------------------------------------------------------------------------------------

UPDATES: list[tuple[str, Kind, Data, Data, str]] = [
    ("data", CONFIG_MAPS, {"data": {"a": "1"}, "immutable": True}, {"data": {"a": "2"}}, "data: Forbidden: field is immutable when `immutable` is set"),
    ("thaw", CONFIG_MAPS, {"data": {"a": "1"}, "immutable": True}, {"immutable": None}, "immutable: Forbidden: field is immutable when `immutable` is set"),
    ("secret", SECRETS, {"data": {"a": "YQ=="}, "immutable": True}, {"stringData": {"a": "b"}}, "data: Forbidden: field is immutable when `immutable` is set"),
    ("type", SECRETS, {}, {"type": "example.com/x"}, "type: Invalid value: \"example.com/x\": field is immutable"),
    ("template", JOBS, {"spec": {"template": template(restartPolicy="Never")}}, {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}, "spec.template: Invalid value"),
    ("completions", JOBS, {"spec": {"template": template(restartPolicy="Never")}}, {"spec": {"completions": 9}}, "spec.completions: Invalid value: 9: field is immutable"),
    ("range", NODES, {"spec": {"podCIDR": "10.0.0.0/24"}}, {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}, 'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'),
    ("provider", NODES, {"spec": {"providerID": "a"}}, {"spec": {"providerID": "b"}}, "spec.providerID: Forbidden: node updates may not change providerID"),
    ("pool", SLICES, a_slice(), {"spec": {"pool": {"name": "q"}}}, 'spec.pool.name: Invalid value: "q": field is immutable'),
    ("parameters", kind("storageclasses", "storage.k8s.io"), {"provisioner": "p"}, {"parameters": {"a": "b"}}, "parameters: Invalid value: {\"a\":\"b\"}: updates to parameters are forbidden."),
    ("service", STATEFUL_SETS, workload(serviceName="a"), {"spec": {"serviceName": "b"}}, "spec: Forbidden: updates to statefulset spec for fields other than 'replicas'"),
    ("source", VOLUMES, volume(), {"spec": {"hostPath": {"path": "/e"}}}, "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"),
    ("mode", CLAIMS, claim(), {"spec": {"accessModes": ["ReadWriteMany"]}}, "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"),
    ("size unbound", CLAIMS, claim(), {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, "spec: Forbidden: spec is immutable after creation"),
    ("class", CAPACITIES, {"storageClassName": "a"}, {"storageClassName": "b"}, 'storageClassName: Invalid value: "b": field is immutable'),
    ("topology", CAPACITIES, {"storageClassName": "a"}, {"nodeTopology": SELECTOR}, "nodeTopology: Invalid value"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "of", "before", "change", "text"), UPDATES, ids=[f"{row[1].kind} {row[0]}" for row in UPDATES]
)
def test_an_update_is_refused(what: str, of: Kind, before: Data, change: Data, text: str) -> None:
    store = a_store()
    make(store, of, before)
    with refused(422, "Invalid", text):
        store.patch(of, "default" if of.namespaced else "", "x", change)


def test_a_suspended_job_may_get_another_place_and_a_bound_claim_may_grow() -> None:
    store = a_store()
    make(store, JOBS, {"spec": {"suspend": True, "template": template(restartPolicy="Never")}})
    moved = store.patch(JOBS, "default", "x", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}})
    assert moved.data()["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    make(store, CLAIMS, claim())
    store.patch(CLAIMS, "default", "x", {"spec": {"volumeName": "v", "storageClassName": "s"}})
    status = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    store.patch(CLAIMS, "default", "x", status, subresource="status")
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert store.patch(CLAIMS, "default", "x", larger).data()["spec"]["volumeName"] == "v"
    with refused(422, match="spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"):
        store.patch(CLAIMS, "default", "x", {"spec": {"resources": {"requests": {"storage": "1Mi"}}}})
    with refused(422, match="spec: Forbidden: spec is immutable"):
        store.patch(CLAIMS, "default", "x", {"spec": {"volumeName": "w"}})


# -- pods and deletion ---------------------------------------------------------------------------------------


def test_overhead_needs_a_runtime_class_that_has_it() -> None:
    store = a_store()
    store.create(kind("runtimeclasses", "node.k8s.io"), "", {"metadata": {"name": "plain"}, "handler": "h"})
    restored = store.create(PODS, "default", a_pod("saved", overhead={"cpu": "1"}), restore=True)
    assert restored.data()["spec"]["overhead"] == {"cpu": "1"}
    for more in ({}, {"runtimeClassName": "plain"}):
        with refused(
            403, "Forbidden", "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        ):
            store.create(PODS, "default", a_pod("p", overhead={"cpu": "1"}, **more))


def test_a_negative_grace_period_is_one_second() -> None:
    store = a_store()
    running(store, "p")
    assert (
        store.delete(PODS, "default", "p", grace_period_seconds=-5).data()["metadata"]["deletionGracePeriodSeconds"]
        == 1
    )
    running(store, "q", terminationGracePeriodSeconds=-7)
    assert store.delete(PODS, "default", "q").data()["metadata"]["deletionGracePeriodSeconds"] == 1


def test_the_priority_classes_of_the_system_stay() -> None:
    of = kind("priorityclasses", "scheduling.k8s.io")
    with refused(403, "Forbidden", "this is a system priority class and cannot be deleted"):
        a_store().delete(of, "", "system-node-critical")


def test_each_rule_is_of_a_field_that_exists_and_every_kind_can_be_empty() -> None:
    ruled = {name: rules for name in types() if (rules := field_rules(name))}
    assert len(ruled) > 100
    assert all(set(rules) <= set(types()[name].fields) for name, rules in ruled.items())
    refusals: dict[Kind, int] = {}
    for of in KINDS:
        if of.group == "events.k8s.io" or of == PODS:
            continue
        try:
            make(a_store(), of, {}, name="empty")
        except ApiError as error:
            refusals[of] = error.code
    assert set(refusals.values()) <= {400, 422}


def test_each_condition_can_be_evaluated_and_is_known_by_the_members_that_it_reads() -> None:
    ruled = {name: rules.conditions for name, rules in type_rules().items() if rules.conditions}
    assert len(ruled) > 30
    for name, conditions in ruled.items():
        for data in ({}, {"metadata": {"name": "a"}}):
            check_conditions(name, data, None, "", Causes())
            check_conditions(name, data, {"metadata": {"name": "b"}}, "", Causes())
        for condition in conditions:
            assert READ.search(condition.expression)
            assert "elf" not in READ.sub("", condition.expression)


def test_a_condition_holds_again_after_it_was_broken() -> None:
    def problems(**spec: Any) -> list[str]:
        causes = Causes()
        check_conditions("PodDisruptionBudgetSpec", spec, None, "spec", causes)
        return [path for path, _, _ in causes]

    assert [problems(minAvailable=1), problems(minAvailable=1, maxUnavailable=1), problems(minAvailable=1)] == [
        [],
        ["spec"],
        [],
    ]


def test_a_bound_claim_without_resources_is_refused() -> None:
    store = a_store()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    store.create(CLAIMS, "default", {"metadata": {"name": "c"}, "spec": spec})
    bound = {"metadata": {"name": "c"}, "spec": spec, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
    store.update(CLAIMS, "default", "c", bound, subresource="status")
    with refused(422, "Invalid", "spec.resources[storage]: Required value"):
        store.update(CLAIMS, "default", "c", {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"]}})
