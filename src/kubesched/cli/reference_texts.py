"""Texts of the reference pages about fields and feature gates, in addition to the types and tables themselves.

Caller: :mod:`.reference`. A test checks that each field of the configuration has a text here, and that no other name
has.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FIELDS", "GATES", "SELECTOR_TYPES", "WITHOUT_EFFECT"]

#: Types of the Kubernetes API within the configuration. Kubernetes describes them.
SELECTOR_TYPES: Final = frozenset({"NodeAffinity", "TopologySpreadConstraint"})

#: Meanings of fields, by type and by field as written in the file.
FIELDS: Final[dict[str, dict[str, str]]] = {
    "KubeSchedulerConfiguration": {
        "parallelism": "Accepted and checked (> 0), without effect: one thread decides for all nodes at once, by columns.",
        "leaderElection": "The lease that decides who schedules.",
        "clientConnection": "Access to the API server.",
        "enableProfiling": "Serve `/debug/pprof` and `/debug/flags`.",
        "enableContentionProfiling": "Default: true if `enableProfiling` is true.",
        "percentageOfNodesToScore": "0 to 100. 0: every node is evaluated. Otherwise a search ends once this percentage of the nodes "
        "passed (at least 100 nodes), as in kube-scheduler.",
        "podInitialBackoffSeconds": "The first wait of a pod after a failed attempt; greater than 0.",
        "podMaxBackoffSeconds": "The longest wait of a pod between attempts; not less than the first.",
        "profiles": "One scheduler per profile; all share one queue. Empty: one profile, `default-scheduler`.",
        "extenders": "HTTP services that take part in scheduling.",
        "delayCacheUntilActive": "Start the informers only once the lease is won: less memory and load while waiting, a slower start.",
    },
    "LeaderElection": {
        "leaderElect": "Schedule only while holding the lease.",
        "leaseDuration": "Time that others wait after the last renewal they saw; greater than `renewDeadline`.",
        "renewDeadline": "Time that the leader tries to renew before it gives up and exits; greater than 1.2 times `retryPeriod`.",
        "retryPeriod": "Time between attempts.",
        "resourceLock": "The kind of the lock; must be `leases`.",
        "resourceName": "The name of the lease. Schedulers with the same name wait for each other.",
        "resourceNamespace": "The namespace of the lease.",
    },
    "ClientConnection": {
        "kubeconfig": "The file with address and credentials. If empty, without `--master`: the service account of the pod.",
        "acceptContentTypes": "Accepted for compatibility; JSON is requested.",
        "contentType": "Accepted for compatibility; JSON is sent.",
        "qps": "Requests a second for bindings and statuses; events and the lease have the same limit each. 0 means 50; negative: no limit.",
        "burst": "Requests at once. 0 means 100.",
    },
    "ProfileConfig": {
        "schedulerName": "The name that pods give in `spec.schedulerName`. Default for a single profile: `default-scheduler`; otherwise required and unique.",
        "percentageOfNodesToScore": "Overrides the value for all profiles.",
        "plugins": "Plugins added to and removed from the defaults.",
        "pluginConfig": "Arguments of plugins.",
    },
    "Plugins": {
        "preEnqueue": "Called before a pod enters the active queue.",
        "queueSort": "The order of the queue; the same plugin in every profile.",
        "preFilter": "Called once per pod, before its nodes are filtered.",
        "filter": "Decides which nodes can run the pod.",
        "postFilter": "Called if no node can run the pod: preemption.",
        "preScore": "Called once per pod, before its nodes are scored.",
        "score": "Ranks the nodes that can run the pod.",
        "reserve": "Called when a node was chosen, and when that is undone.",
        "permit": "Allows, denies or delays the binding.",
        "preBind": "Does work before the binding.",
        "bind": "Binds the pod. The first plugin that does not skip does it.",
        "postBind": "Called after the binding.",
        "multiPoint": "Every point that the plugin implements. The default plugins are enabled here.",
        "placementGenerate": "Accepted as in 1.36; groups of pods are not scheduled as a whole.",
        "placementScore": "Accepted as in 1.36; groups of pods are not scheduled as a whole.",
    },
    "PluginSet": {
        "enabled": "Plugins to add after the defaults, or in place of the default with the same name.",
        "disabled": "Defaults to leave out; the name `*` leaves out all.",
    },
    "Plugin": {
        "name": "The plugin's name.",
        "weight": "The weight of its score; 0 means 1. Other points ignore it.",
    },
    "PluginConfig": {
        "name": "The plugin's name.",
        "args": "Its arguments, see below. A plugin of your own defines them itself.",
    },
    "Extender": {
        "urlPrefix": "The address that verbs are appended to.",
        "filterVerb": "The path of filter calls. An empty verb is not called.",
        "preemptVerb": "The path of preemption calls.",
        "prioritizeVerb": "The path of score calls.",
        "weight": "The weight of its scores; greater than 0 with `prioritizeVerb`.",
        "bindVerb": "The path of binding calls; at most one extender has one.",
        "enableHTTPS": "Use HTTPS even without `tlsConfig`.",
        "tlsConfig": "Certificates for the calls.",
        "httpTimeout": "Longest time of a call; 0 means 5 s.",
        "nodeCacheCapable": "Send names of nodes instead of whole nodes.",
        "managedResources": "Call it only for pods that request one of these resources.",
        "ignorable": "Schedule without it if it cannot be reached.",
    },
    "ExtenderManagedResource": {
        "name": "The extended resource.",
        "ignoredByScheduler": "NodeResourcesFit does not filter on it.",
    },
    "ExtenderTLSConfig": {
        "insecure": "Do not verify the server's certificate.",
        "serverName": "The name that the server's certificate must have.",
        "certFile": "The file of the client certificate.",
        "keyFile": "The file of its key.",
        "caFile": "The file of the authorities to trust.",
        "certData": "The client certificate itself; used in place of the file.",
        "keyData": "Its key; used in place of the file.",
        "caData": "The authorities; used in place of the file.",
    },
    "DefaultPreemptionArgs": {
        "minCandidateNodesPercentage": "Percentage of all nodes that is examined, 0 to 100; the greater of this and the next field counts.",
        "minCandidateNodesAbsolute": "Number of nodes that is examined. Not both fields may be 0.",
    },
    "DynamicResourcesArgs": {
        "filterTimeout": "Longest search for one pod's devices on one node; 10 s with the gate DRASchedulerFilterTimeout.",
        "bindingTimeout": "Longest wait for devices to be ready; 10 min with the gates DRADeviceBindingConditions and "
        "DRAResourceClaimDeviceStatus.",
    },
    "InterPodAffinityArgs": {
        "hardPodAffinityWeight": "Weight of the required affinity terms of running pods in scoring, 0 to 100.",
        "ignorePreferredTermsOfExistingPods": "Leave preferred terms of running pods out of scoring.",
    },
    "NodeAffinityArgs": {
        "addedAffinity": "Node affinity, required and preferred, added to each pod's own.",
    },
    "NodeResourcesBalancedAllocationArgs": {
        "resources": "The resources whose use is balanced; every weight must be 1.",
    },
    "NodeResourcesFitArgs": {
        "ignoredResources": "Extended resources that the filter ignores.",
        "ignoredResourceGroups": "Domains of extended resources that the filter ignores.",
        "scoringStrategy": "The way nodes are scored.",
    },
    "ScoringStrategy": {
        "type": "`LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`. Required if a strategy is given.",
        "resources": "The resources and their weights, 1 to 100. Empty: cpu and memory, weight 1.",
        "requestedToCapacityRatio": "The score by utilization, only for the type of this name.",
    },
    "RequestedToCapacityRatioParam": {
        "shape": "Points of a broken line, by rising utilization.",
    },
    "UtilizationShapePoint": {
        "utilization": "Percent, 0 to 100.",
        "score": "0 to 10.",
    },
    "ResourceSpec": {
        "name": "The resource, such as `cpu`.",
        "weight": "Its weight among the resources; 0 means 1.",
    },
    "PodTopologySpreadArgs": {
        "defaultConstraints": "Constraints for pods that have none, without a selector; needs `defaultingType: List`.",
        "defaultingType": "`System`: hosts with skew 3, zones with skew 5, preferred only. `List`: the constraints above.",
    },
    "VolumeBindingArgs": {
        "bindTimeoutSeconds": "Longest wait for volumes to be bound; 0 or more.",
        "shape": "The score by use of storage; needs the gate StorageCapacityScoring.",
    },
}

#: Effects of the gates that this program reads. Gates of metrics and of plugins are in tables of their own.
GATES: Final[dict[str, str]] = {
    "ComponentFlagz": "serves `/flagz`",
    "ComponentStatusz": "serves `/statusz`",
    "CoordinatedLeaderElection": "the leader is chosen by the API server's controller",
    "DRAAdminAccess": "claims may ask for devices with `adminAccess`",
    "DRAConsumableCapacity": "devices may be shared by claims that ask for a part of their capacity",
    "DRADeviceBindingConditions": "devices may have binding conditions; `bindingTimeout` of DynamicResourcesArgs may be given",
    "DRADeviceTaintRules": "DeviceTaintRules taint devices, and evict pods of the embedded cluster; the role needs `list` and `watch` of `devicetaintrules`",
    "DRADeviceTaints": "taints of devices are honoured",
    "DRAExtendedResource": "extended resources may be served by device classes: NodeResourcesFit leaves them to DynamicResources",
    "DRAListTypeAttributes": "attributes of devices may be lists, in CEL expressions",
    "DRAPartitionableDevices": "devices may consume shared counters, and choose their nodes one by one",
    "DRAPrioritizedList": "claims may have requests with `firstAvailable`",
    "DRAResourceClaimDeviceStatus": "devices may have binding conditions; `bindingTimeout` of DynamicResourcesArgs may be given",
    "DRASchedulerFilterTimeout": "`filterTimeout` of DynamicResourcesArgs may be given",
    "DRAWorkloadResourceClaims": "[pod groups](pod-groups.md) have claims that their members share",
    "GenericWorkload": "pods belong to [pod groups](pod-groups.md), whose members are tried together; the embedded cluster serves `podgroups` and `workloads`; the role needs `list` and `watch` of `podgroups`, and `patch` of `podgroups/status` ([permissions](operate.md#permissions))",
    "InPlacePodLevelResourcesVerticalScaling": "`status.resources` and `status.allocatedResources` of a pod count in addition to its spec",
    "LoggingAlphaOptions": "log buffer and split-stream flags may be given",
    "LoggingBetaOptions": "`--logging-format=json` may be given",
    "MatchLabelKeysInPodTopologySpread": "`matchLabelKeys` of topology spread constraints are honoured",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": "the cluster of a simulation stores new pods with these keys in the selectors of spread constraints; a real API server has a gate of its own",
    "NodeDeclaredFeatures": "pods run on nodes that declare the features they need",
    "NominatedNodeNameForExpectation": "the chosen node is published before work on the binding begins",
    "PodLevelResources": "`spec.resources` of a pod replaces the sum over its containers",
    "RemoteRequestHeaderUID": "front proxies may say the UID of a user; `--requestheader-uid-headers` may be given",
    "SchedulerAsyncPreemption": "victims are evicted alongside further scheduling cycles",
    "SchedulerPopFromBackoffQ": "a rejected pod is tried before its backoff ends if no other pod waits; backoff ends at whole seconds",
    "StorageCapacityScoring": "VolumeBinding scores nodes by the use of storage; `shape` of VolumeBindingArgs may be given",
    "VolumeLimitScaling": "NodeVolumeLimits rejects nodes that lack a CSI driver with preventPodSchedulingIfMissing",
    "TaintTolerationComparisonOperators": "tolerations may compare numbers with `Lt` and `Gt`",
    "TopologyAwareWorkloadScheduling": "a group may ask for nodes with one value of a label",
    "WatchListClient": "a list is read from the beginning of a watch, and in pages only if the server cannot do that",
    "WorkloadAwarePreemption": "a group evicts others as a whole, and with `disruptionMode: PodGroup` is evicted as a whole; groups have a priority of their own",
    "WorkloadWithJob": "the embedded cluster makes a Workload and a PodGroup for each indexed Job that runs all its pods at once",
}

_CLIENT: Final = "concerns the inside of the Go client library"
#: Gates that have no effect here, with the reason.
WITHOUT_EFFECT: Final[dict[str, str]] = {
    "AtomicFIFO": _CLIENT,
    "ClearingNominatedNodeNameAfterBinding": "read by the API server only; the embedded one always clears the nomination of a bound pod",
    "ClientsAllowCARotation": "files of certificate authorities are always read again when they change",
    "ClientsAllowCBOR": "allows an encoding that the client does not ask for: it reads and writes JSON",
    "ClientsAllowTLSCacheGC": _CLIENT,
    "ContextualLogging": "log lines always name their objects",
    "DRAResourceClaimGranularStatusAuthorization": "read by the API server only; the shipped role has the permissions it asks for",
    "InOrderInformersBatchProcess": _CLIENT,
    "InformerResourceVersion": _CLIENT,
    "OpportunisticBatching": "the results of plugins for pods that are alike are remembered in another way, with the same decisions",
    "SchedulerAsyncAPICalls": "status patches are always written in the background, and bindings alongside further cycles",
    "UnlockWhileProcessingFIFO": _CLIENT,
}
