"""Validation of the objects that scheduling reads: values that a real server refuses, and neighbours that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cluster_world import a_store, kind

from kubesched.api.kinds import PODS, Kind
from kubesched.api.wire import ApiError

Data = dict[str, Any]
CSI_DRIVERS, CSI_NODES = kind("csidrivers", "storage.k8s.io"), kind("csinodes", "storage.k8s.io")
STORAGE_CLASSES, ATTACHMENTS = kind("storageclasses", "storage.k8s.io"), kind("volumeattachments", "storage.k8s.io")
CLAIMS, VOLUMES = kind("persistentvolumeclaims"), kind("persistentvolumes")
ATTRIBUTES = kind("volumeattributesclasses", "storage.k8s.io")


def spec(**more: Any) -> Data:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], **more}}


def container(**more: Any) -> Data:
    return {"spec": {"containers": [{"name": "c", "image": "i", **more}]}}


def volume(**source: Any) -> Data:
    return spec(volumes=[{"name": "v", **source}])


def mount(**more: Any) -> Data:
    one = {"name": "v", "mountPath": "/v", **more}
    return spec(volumes=[{"name": "v"}], containers=[{"name": "c", "image": "i", "volumeMounts": [one]}])


def claim(**more: Any) -> Data:
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **more}}


def persistent(**more: Any) -> Data:
    host = {"hostPath": {"path": "/x"}}
    return {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, **host, **more}}


def topologies(*keys: str) -> Data:
    terms = [{"matchLabelExpressions": [{"key": key, "values": ["a"]} for key in keys]}]
    return {"provisioner": "example.com/p", "allowedTopologies": terms}


def csi_node(**more: Any) -> Data:
    return {"spec": {"drivers": [{"name": "d.example", "nodeID": "n", "topologyKeys": [], **more}]}}


def attachment(**more: Any) -> Data:
    return {"spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}, **more}}


def sourced(**reference: Any) -> Data:
    return claim(dataSource={"name": "s", **reference})


IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
#: Kind, the function that makes the object, values that are refused, values that are taken, and the error.
TABLE: list[tuple[Kind, Callable[..., Data], Data, Data, str]] = [
    (PODS, spec, {"shareProcessNamespace": True, "hostPID": True}, {"hostPID": True}, "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"),
    (PODS, spec, {"hostAliases": [{"ip": "1.2.3", "hostnames": ["a"]}]}, {"hostAliases": [{"ip": "::1", "hostnames": ["a"]}]}, f'spec.hostAliases[0].ip: Invalid value: "1.2.3": {IP}'),
    (PODS, spec, {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["A_b"]}]}, {}, "spec.hostAliases[0].hostnames"),
    (PODS, spec, {"readinessGates": [{"conditionType": "a b"}]}, {"readinessGates": [{"conditionType": "example.com/a"}]}, 'spec.readinessGates[0].conditionType: Invalid value: "a b"'),
    (PODS, spec, {"dnsConfig": {"nameservers": ["x"]}}, {"dnsConfig": {"nameservers": ["1.1.1.1"]}}, "spec.dnsConfig.nameservers"),
    (PODS, spec, {"dnsConfig": {"nameservers": ["1.1.1.1"] * 4}}, {"dnsConfig": {"nameservers": ["1.1.1.1"] * 3}}, "spec.dnsConfig.nameservers: Too many: 4: must have at most 3 items"),
    (PODS, spec, {"dnsConfig": {"options": [{"value": "1"}]}}, {"dnsConfig": {"options": [{"name": "a"}]}}, "spec.dnsConfig.options[0].name: Required value"),
    (PODS, spec, {"securityContext": {"supplementalGroups": [-1]}}, {"securityContext": {"supplementalGroups": [0]}}, "spec.securityContext.supplementalGroups"),
    (PODS, spec, {"securityContext": {"sysctls": [{"name": "a", "value": "1"}] * 2}}, {"securityContext": {"sysctls": [{"name": "a", "value": "1"}]}}, 'spec.securityContext.sysctls[1].name: Duplicate value: "a"'),
    (PODS, container, {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}, {"securityContext": {"privileged": True}}, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"),
    (PODS, container, {"securityContext": {"procMount": "Some"}}, {"securityContext": {"procMount": "Default"}}, 'securityContext.procMount: Unsupported value: "Some": supported values: "Default", "Unmasked"'),
    (PODS, container, {"ports": [{"containerPort": 1, "hostIP": "x"}]}, {"ports": [{"containerPort": 1, "hostIP": "1.2.3.4"}]}, f'spec.containers[0].ports[0].hostIP: Invalid value: "x": {IP}'),
    (PODS, container, {"resizePolicy": [{"resourceName": "disk", "restartPolicy": "NotRequired"}]}, {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]}, 'resourceName: Unsupported value: "disk": supported values: "cpu", "memory"'),
    (PODS, container, {"envFrom": [{}]}, {"envFrom": [{"configMapRef": {"name": "c"}}]}, "must specify one of: `configMapRef` or `secretRef`"),
    (PODS, container, {"envFrom": [{"secretRef": {}}]}, {"envFrom": [{"secretRef": {"name": "s"}}]}, "spec.containers[0].envFrom[0].secretRef.name: Required value"),
    (PODS, mount, {"subPath": "/a"}, {"subPath": "a"}, 'subPath: Invalid value: "/a": must be a relative path'),
    (PODS, mount, {"subPath": "a/../b"}, {"subPath": "a..b"}, "subPath: Invalid value: \"a/../b\": must not contain '..'"),
    (PODS, mount, {"subPath": "a", "subPathExpr": "b"}, {"subPathExpr": "b"}, "subPathExpr and subPath are mutually exclusive"),
    (PODS, volume, {"secret": {}}, {"secret": {"secretName": "s"}}, "spec.volumes[0].secret.secretName: Required value"),
    (PODS, volume, {"configMap": {}}, {"configMap": {"name": "s"}}, "spec.volumes[0].configMap.name: Required value"),
    (PODS, volume, {"configMap": {"name": "c", "items": [{"key": "k", "path": "/p"}]}}, {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}, "must be a relative path"),
    (PODS, volume, {"nfs": {"server": "s", "path": "p"}}, {"nfs": {"server": "s", "path": "/p"}}, 'nfs.path: Invalid value: "p": must be an absolute path'),
    (CLAIMS, claim, {"storageClassName": "A_b"}, {"storageClassName": ""}, 'spec.storageClassName: Invalid value: "A_b"'),
    (CLAIMS, sourced, {"kind": "Pod"}, {"kind": "PersistentVolumeClaim"}, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"),
    (VOLUMES, persistent, {"storageClassName": "A_b"}, {"storageClassName": "a"}, 'spec.storageClassName: Invalid value: "A_b"'),
    (VOLUMES, persistent, {"persistentVolumeReclaimPolicy": "Recycle", "hostPath": {"path": "/"}}, {"persistentVolumeReclaimPolicy": "Recycle"}, "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath volume mounted at '/'"),
    (STORAGE_CLASSES, lambda **more: more, {"provisioner": "a b"}, {"provisioner": "Example.com/p"}, 'provisioner: Invalid value: "a b"'),
    (STORAGE_CLASSES, lambda keys: topologies(*keys), {"keys": ["a", "a"]}, {"keys": ["a", "b"]}, 'allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "a"'),
    (STORAGE_CLASSES, lambda keys: topologies(*keys), {"keys": ["a b"]}, {"keys": ["a"]}, 'matchLabelExpressions[0].key: Invalid value: "a b"'),
    (CSI_NODES, csi_node, {"name": "a_b"}, {"name": "A.b"}, 'spec.drivers[0].name: Invalid value: "a_b"'),
    (CSI_NODES, csi_node, {"nodeID": "n" * 257}, {"nodeID": "n" * 256}, "spec.drivers[0].nodeID"),
    (CSI_NODES, csi_node, {"topologyKeys": ["a b"]}, {"topologyKeys": ["a"]}, "spec.drivers[0].topologyKeys"),
    (CSI_DRIVERS, lambda **more: {"spec": more}, {"volumeLifecycleModes": ["Short"]}, {"volumeLifecycleModes": ["Ephemeral"]}, 'spec.volumeLifecycleModes: Unsupported value: "Short"'),
    (CSI_DRIVERS, lambda **more: {"spec": more}, {"tokenRequests": [{"audience": "a"}] * 2}, {"tokenRequests": [{"audience": "a"}]}, 'Duplicate value: "a"'),
    (ATTACHMENTS, attachment, {"attacher": "a_b"}, {}, 'spec.attacher: Invalid value: "a_b"'),
    (ATTACHMENTS, attachment, {"nodeName": "A_b"}, {}, 'spec.nodeName: Invalid value: "A_b"'),
    (ATTRIBUTES, lambda **more: more, {"driverName": "a_b"}, {"driverName": "a.b"}, 'driverName: Invalid value: "a_b"'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of", "made", "wrong", "right", "text"), TABLE, ids=[f"{row[0].kind} {index}" for index, row in enumerate(TABLE)]
)
def test_a_value_that_a_real_server_refuses_is_refused(
    of: Kind, made: Callable[..., Data], wrong: Data, right: Data, text: str
) -> None:
    store, namespace = a_store(), "default" if of.namespaced else ""
    with pytest.raises(ApiError) as refused:
        store.create(of, namespace, {"metadata": {"name": "x"}, **made(**wrong)})
    assert refused.value.code == 422
    assert text in refused.value.message
    store.create(of, namespace, {"metadata": {"name": "x"}, **made(**right)})


@pytest.mark.parametrize(
    ("of", "before", "after", "text"),
    [
        (CSI_DRIVERS, {"spec": {"attachRequired": True}}, {"spec": {"attachRequired": False}}, "spec.attachRequired: Invalid value: false: field is immutable"),
        (ATTRIBUTES, {"driverName": "a"}, {"driverName": "b"}, "updates to driverName are forbidden."),
        (ATTRIBUTES, {"driverName": "a", "parameters": {"k": "1"}}, {"parameters": {"k": "2"}}, "updates to parameters are forbidden."),
    ],
)  # fmt: skip
def test_a_change_that_a_real_server_refuses_is_refused(of: Kind, before: Data, after: Data, text: str) -> None:
    store = a_store()
    store.create(of, "", {"metadata": {"name": "x"}, **before})
    with pytest.raises(ApiError) as refused:
        store.patch(of, "", "x", after)
    assert text in refused.value.message
