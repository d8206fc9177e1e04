"""What the reference pages say about fields and feature gates, beyond what the types and tables say themselves.

Caller: :mod:`.reference`. A test checks that each field of the configuration has a text here, and no other name has.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FIELDS", "GATES", "SELECTOR_TYPES", "WITHOUT_EFFECT"]

#: Types of the Kubernetes API that the configuration contains; they are described by Kubernetes.
SELECTOR_TYPES: Final = frozenset({"NodeAffinity", "TopologySpreadConstraint"})

#: Type and field, as in the file, to its meaning.
FIELDS: Final[dict[str, dict[str, str]]] = {
    "KubeSchedulerConfiguration": {
        "parallelism": "Accepted and checked (> 0). Decisions are made in one thread, by columns of nodes; the value has no effect.",
        "leaderElection": "Which lease decides who schedules.",
        "clientConnection": "How to reach the API server.",
        "enableProfiling": "Serve `/debug/pprof` and `/debug/flags`.",
        "enableContentionProfiling": "True when `enableProfiling` is true, unless given.",
        "percentageOfNodesToScore": "0 to 100. 0: every node is evaluated. Otherwise a search ends after this part of the nodes passed "
        "(at least 100 nodes), as in kube-scheduler.",
        "podInitialBackoffSeconds": "The first wait of a pod after a failed attempt; greater than 0.",
        "podMaxBackoffSeconds": "The longest wait of a pod between attempts; not less than the first.",
        "profiles": "One scheduler per profile, all with one queue. Without any: one profile, `default-scheduler`.",
        "extenders": "HTTP services that take part in scheduling.",
        "delayCacheUntilActive": "Start the informers only after the lease was won: less memory and load while waiting, a slower start.",
    },
    "LeaderElection": {
        "leaderElect": "Schedule only while holding the lease.",
        "leaseDuration": "How long others wait after the last renewal they saw; greater than `renewDeadline`.",
        "renewDeadline": "How long the leader tries to renew before it gives up and exits; greater than 1.2 times `retryPeriod`.",
        "retryPeriod": "How long to wait between attempts.",
        "resourceLock": "The kind of the lock; only `leases`.",
        "resourceName": "The name of the lease. Schedulers with the same name wait for each other.",
        "resourceNamespace": "The namespace of the lease.",
    },
    "ClientConnection": {
        "kubeconfig": "The file with address and credentials. Empty, and no `--master`: the service account of the pod.",
        "acceptContentTypes": "Accepted for compatibility; JSON is requested.",
        "contentType": "Accepted for compatibility; JSON is sent.",
        "qps": "Requests a second, for bindings and statuses, and again as much for events and for the lease. 0 is 50; negative: no limit.",
        "burst": "Requests at once. 0 is 100.",
    },
    "ProfileConfig": {
        "schedulerName": "What pods give in `spec.schedulerName`. `default-scheduler` for a single profile; else required and unique.",
        "percentageOfNodesToScore": "Overrides the value for all profiles.",
        "plugins": "Plugins added to and removed from the defaults.",
        "pluginConfig": "Arguments of plugins.",
    },
    "Plugins": {
        "preEnqueue": "Before a pod enters the active queue.",
        "queueSort": "The order of the queue; the same plugin in every profile.",
        "preFilter": "Once per pod, before its nodes are filtered.",
        "filter": "Which nodes can run the pod.",
        "postFilter": "When no node can: preemption.",
        "preScore": "Once per pod, before its nodes are scored.",
        "score": "Which of the nodes is the best.",
        "reserve": "When a node was chosen, and when that is undone.",
        "permit": "Allow, deny or delay the binding.",
        "preBind": "Work to be done before the binding.",
        "bind": "The binding itself; the first plugin that does not skip does it.",
        "postBind": "After the binding.",
        "multiPoint": "Every point that the plugin implements. The default plugins are enabled here.",
        "placementGenerate": "Accepted as in 1.36; groups of pods are not scheduled as a whole.",
        "placementScore": "Accepted as in 1.36; groups of pods are not scheduled as a whole.",
    },
    "PluginSet": {
        "enabled": "Plugins to add behind the defaults, or in the place of the default with the same name.",
        "disabled": "Defaults to leave out; the name `*` leaves out all.",
    },
    "Plugin": {
        "name": "The plugin's name.",
        "weight": "The weight of its score; 0 is 1. Other points ignore it.",
    },
    "PluginConfig": {
        "name": "The plugin's name.",
        "args": "Its arguments, see below; for plugins of your own whatever they read.",
    },
    "Extender": {
        "urlPrefix": "The address that verbs are appended to.",
        "filterVerb": "The path of filter calls. A verb that is empty is not called.",
        "preemptVerb": "The path of preemption calls.",
        "prioritizeVerb": "The path of score calls.",
        "weight": "The weight of its scores; greater than 0 with `prioritizeVerb`.",
        "bindVerb": "The path of binding calls; at most one extender has one.",
        "enableHTTPS": "Use HTTPS although there is no `tlsConfig`.",
        "tlsConfig": "Certificates for the calls.",
        "httpTimeout": "How long a call may take; 0 is 5 s.",
        "nodeCacheCapable": "Send names of nodes instead of whole nodes.",
        "managedResources": "Call it only for pods that request one of these resources.",
        "ignorable": "Go on without it when it cannot be reached.",
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
        "certData": "The client certificate itself; wins over the file.",
        "keyData": "Its key; wins over the file.",
        "caData": "The authorities; wins over the file.",
    },
    "DefaultPreemptionArgs": {
        "minCandidateNodesPercentage": "The part of all nodes that is examined, 0 to 100; the greater of this and the next field counts.",
        "minCandidateNodesAbsolute": "The number of nodes that is examined. Not both 0.",
    },
    "DynamicResourcesArgs": {
        "filterTimeout": "How long one pod's devices may be searched on one node; 10 s with the gate DRASchedulerFilterTimeout.",
        "bindingTimeout": "How long devices may take to be ready; 10 min with the gates DRADeviceBindingConditions and "
        "DRAResourceClaimDeviceStatus.",
    },
    "InterPodAffinityArgs": {
        "hardPodAffinityWeight": "What required affinity terms of running pods count in scoring, 0 to 100.",
        "ignorePreferredTermsOfExistingPods": "Leave preferred terms of running pods out of scoring.",
    },
    "NodeAffinityArgs": {
        "addedAffinity": "Required and preferred of nodes on top of each pod's own node affinity.",
    },
    "NodeResourcesBalancedAllocationArgs": {
        "resources": "The resources whose use is balanced; every weight is 1.",
    },
    "NodeResourcesFitArgs": {
        "ignoredResources": "Extended resources that are not filtered on.",
        "ignoredResourceGroups": "Domains of extended resources that are not filtered on.",
        "scoringStrategy": "How nodes are scored.",
    },
    "ScoringStrategy": {
        "type": "`LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`. Required when a strategy is given.",
        "resources": "The resources and their weights, 1 to 100. Empty: cpu and memory, weight 1.",
        "requestedToCapacityRatio": "For that type only: the score by utilization.",
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
        "weight": "Its weight among the others; 0 is 1.",
    },
    "PodTopologySpreadArgs": {
        "defaultConstraints": "Constraints of pods that have none, without a selector; needs `defaultingType: List`.",
        "defaultingType": "`System`: hosts with skew 3, zones with skew 5, preferred only. `List`: the constraints above.",
    },
    "VolumeBindingArgs": {
        "bindTimeoutSeconds": "How long volumes may take to be bound; 0 or more.",
        "shape": "The score by use of storage; needs the gate StorageCapacityScoring.",
    },
}

#: Gates that this program reads, to what they do here. Gates of metrics and of plugins are found in their tables.
GATES: Final[dict[str, str]] = {
    "ComponentFlagz": "serves `/flagz`",
    "ComponentStatusz": "serves `/statusz`",
    "CoordinatedLeaderElection": "the leader is chosen by the API server's controller",
    "DRAAdminAccess": "claims may ask for devices with `adminAccess`",
    "DRAConsumableCapacity": "devices may be shared by claims that ask for a part of their capacity",
    "DRADeviceBindingConditions": "devices may have binding conditions; `bindingTimeout` of DynamicResourcesArgs may be given",
    "DRADeviceTaintRules": "DeviceTaintRules taint devices, and evict pods of the embedded cluster; the role needs `list` and `watch` for `devicetaintrules`",
    "DRADeviceTaints": "taints of devices are honoured",
    "DRAExtendedResource": "extended resources may be served by device classes: NodeResourcesFit leaves them to DynamicResources",
    "DRAListTypeAttributes": "attributes of devices may be lists, in CEL expressions",
    "DRAPartitionableDevices": "devices may consume shared counters, and choose their nodes one by one",
    "DRAPrioritizedList": "claims may have requests with `firstAvailable`",
    "DRAResourceClaimDeviceStatus": "devices may have binding conditions; `bindingTimeout` of DynamicResourcesArgs may be given",
    "DRASchedulerFilterTimeout": "`filterTimeout` of DynamicResourcesArgs may be given",
    "InPlacePodLevelResourcesVerticalScaling": "`status.resources` and `status.allocatedResources` of a pod count besides its spec",
    "LoggingAlphaOptions": "log buffer and split-stream flags may be given",
    "LoggingBetaOptions": "`--logging-format=json` may be given",
    "MatchLabelKeysInPodTopologySpread": "`matchLabelKeys` of topology spread constraints are honoured",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": "the cluster of a simulation stores new pods with these keys in the selectors of spread constraints; a real API server has a gate of its own",
    "NodeDeclaredFeatures": "pods run on nodes that declare the features they need",
    "NominatedNodeNameForExpectation": "the chosen node is published before work on the binding begins",
    "PodLevelResources": "`spec.resources` of a pod replaces the sum over its containers",
    "RemoteRequestHeaderUID": "front proxies may say the UID of a user; `--requestheader-uid-headers` may be given",
    "SchedulerAsyncPreemption": "victims are evicted alongside further scheduling cycles",
    "SchedulerPopFromBackoffQ": "a rejected pod is tried before its backoff ends when no other waits; backoff ends at whole seconds",
    "StorageCapacityScoring": "VolumeBinding scores nodes by the use of storage; `shape` of VolumeBindingArgs may be given",
    "VolumeLimitScaling": "NodeVolumeLimits rejects nodes without a CSI driver that asks for that (preventPodSchedulingIfMissing)",
    "TaintTolerationComparisonOperators": "tolerations may compare numbers with `Lt` and `Gt`",
    "WatchListClient": "lists come as the beginning of a watch, in pages only when the server cannot do that",
}

_CLIENT: Final = "about the inside of the Go client library"
#: Gates on which nothing here depends, and why.
WITHOUT_EFFECT: Final[dict[str, str]] = {
    "AtomicFIFO": _CLIENT,
    "ClearingNominatedNodeNameAfterBinding": "read by the API server only; the embedded one always clears the nomination of a bound pod",
    "ClientsAllowCARotation": "files of certificate authorities are read again when they change, in any case",
    "ClientsAllowCBOR": "allows an encoding that the client does not ask for: it reads and writes JSON",
    "ClientsAllowTLSCacheGC": _CLIENT,
    "ContextualLogging": "log lines name their objects in any case",
    "DRAResourceClaimGranularStatusAuthorization": "read by the API server only; the shipped role has what it asks for",
    "InOrderInformersBatchProcess": _CLIENT,
    "InformerResourceVersion": _CLIENT,
    "OpportunisticBatching": "what plugins say of pods that are alike is remembered in another way, with the same decisions",
    "SchedulerAsyncAPICalls": "status patches are written in the background, and bindings alongside further cycles, in any case",
    "UnlockWhileProcessingFIFO": _CLIENT,
}
