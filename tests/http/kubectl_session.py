"""Commands typed in the recorded session with kubectl, and what must come of them.

Run and compared by :mod:`test_http_kubectl`; the transcript is docs/kubectl-session.md.
"""

from __future__ import annotations

from dataclasses import dataclass

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: one}}
spec:
  containers:
  - {name: main, image: pause, resources: {requests: {cpu: 500m, memory: 512Mi}}}
"""
BIG = """\
apiVersion: v1
kind: Pod
metadata: {name: big}
spec:
  containers:
  - {name: main, image: pause, resources: {requests: {cpu: 100}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - topologyKey: kubernetes.io/hostname
        maxSkew: 1
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: web}}
      containers:
      - {name: c, image: nginx, ports: [{containerPort: 80}], resources: {requests: {cpu: 400m, memory: 512Mi}}}
"""
BUDGET = """\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 3
  selector: {matchLabels: {app: web}}
"""
AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - {name: c, image: agent}
"""
WIDGETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wg]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, description: How big.}, count: {type: integer}}
"""
WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3, count: 1}\n"

FILES = {
    "pod.yaml": POD,
    "big.yaml": BIG,
    "web.yaml": DEPLOYMENT,
    "other.yaml": DEPLOYMENT.replace("replicas: 3", "replicas: 9"),
    "budget.yaml": BUDGET,
    "agent.yaml": AGENT,
    "wrong.yaml": POD.replace("containers", "contaners"),
    "crd.yaml": WIDGETS,
    "widget.yaml": WIDGET,
}


#: Files that no step of the transcript shows.
HIDDEN_FILES = {"other.yaml", "wrong.yaml"}


@dataclass(frozen=True)
class Step:
    """One command: ``expect`` is a pattern its output must hold.

    With ``until`` it is repeated until the pattern is there: the cluster needs its time. ``meanwhile`` is a second
    command, given as soon as the first one is seen to wait (it has opened a watch). If ``shown`` is False, the step is
    checked, but the transcript leaves it out.
    """

    command: str
    expect: str
    fails: bool = False
    until: bool = False
    meanwhile: str = ""
    shown: bool = True


def _rows(count: int, pattern: str) -> str:
    """A table of exactly so many rows, each with a pattern in it."""
    return rf"\A[^\n]*\n(?:[^\n]*{pattern}[^\n]*\n){{{count}}}\Z"


#: Headings and commands, in order.
SESSION: tuple[str | Step, ...] = (
    "Looking around",
    Step("cluster-info", r"control plane.* is running at"),
    Step("version", r"v1\.36\.0"),
    Step("get nodes", _rows(3, r"n\d +Ready +<none> .* v1.36.0")),
    Step("get nodes -o wide", r"INTERNAL-IP", shown=False),
    Step("api-resources", r"priorityclasses +pc +scheduling.k8s.io/v1 +false +PriorityClass", shown=False),
    Step("explain pod.spec.tolerations", r"effect\s+<string>", shown=False),
    Step("explain pod.spec.containers.imagePullPolicy", r"IfNotPresent\n"),
    Step("auth can-i create pods", r"^yes"),
    "A pod",
    Step("create -f pod.yaml --dry-run=server", r"pod/p created \(server dry run\)", shown=False),
    Step("get pods", r"No resources found"),
    Step("create -f pod.yaml", r"pod/p created$"),
    Step("create -f pod.yaml", r"AlreadyExists", fails=True),
    Step("wait --for=condition=Ready pod/p --timeout=60s", r"condition met"),
    Step("get pods", r"p +1/1 +Running +0"),
    Step("get pods -o wide", r"n2 +<none> +<none>"),
    Step("get pod p -o yaml", r"nodeName: n2", shown=False),
    Step("get pods --field-selector spec.nodeName=n2 -l app=one", r"^p ", shown=False),
    Step("get pods -l app=two", r"No resources found", shown=False),
    Step("get pods --field-selector spec.colour=red", r"field label not supported: spec.colour", fails=True),
    Step("get events", r"Normal +Scheduled +pod/p +Successfully assigned default/p to n2", until=True),
    Step(
        "describe pod p",
        r"(?s)Node: +n2/.*Requests:.*cpu: +500m.*default-scheduler +Successfully assigned",
        shown=False,
    ),
    Step("label pod p tier=front", r"pod/p labeled", shown=False),
    Step('patch pod p -p \'{"metadata":{"annotations":{"a":"b"}}}\'', r"pod/p patched"),
    Step("logs p", r"^Warning: .*hollow"),
    Step("exec p -- ls", r"hollow", fails=True),
    Step("top pods", r"Metrics API not available", fails=True, shown=False),
    "A pod that fits nowhere",
    Step("create -f big.yaml", r"pod/big created"),
    Step(
        "get events --field-selector involvedObject.name=big", r"FailedScheduling +pod/big +0/3 nodes are", until=True
    ),
    Step("get pod big", r"big +0/1 +Pending", shown=False),
    Step("describe pod big", r"(?s)PodScheduled +False.*Warning +FailedScheduling.*3 Insufficient cpu"),
    Step("delete pod big", r'pod "big" deleted', shown=False),
    "A deployment",
    Step("cordon n0 n1 n2", r"(?s)n0 cordoned.*n1 cordoned.*n2 cordoned"),
    Step("apply -f web.yaml", r"deployment.apps/web created"),
    Step("apply -f web.yaml", r"deployment.apps/web unchanged"),
    Step("get pods -l app=web", _rows(3, r"web-\w+-\w+ +0/1 +Pending"), until=True),
    Step(
        "get events --field-selector reason=FailedScheduling",
        r"(?s)(web-.*3 node\(s\) were unschedulable.*){3}",
        until=True,
    ),
    Step(
        "rollout status deployment web --timeout=120s",
        r"(?s)Waiting for.* 0 of 3 updated replicas are available.*successfully rolled out",
        meanwhile="uncordon n2",
    ),
    Step("get pods -l app=web -o wide", _rows(3, r"1/1 +Running .* n2 ")),
    Step("uncordon n0 n1", r"(?s)n0 uncordoned.*n1 uncordoned"),
    Step("get deployments", r"web +3/3 +3 +3"),
    Step("scale deployment web --replicas=5", r"web scaled"),
    Step("rollout status deployment web --timeout=120s", r"successfully rolled out"),
    Step("get deployment web --subresource=scale", r"NAME +DESIRED +AVAILABLE +AGE\nweb +5 +5 ", shown=False),
    Step("get pods -l app=web -o wide", _rows(5, r"1/1 +Running .* n[012] ")),
    Step("get replicasets", r"web-\w+ +5 +5 +5", shown=False),
    Step(
        "describe deployment web",
        r"(?s)5 desired \| 5 updated \| 5 total \| 5 available.*25% max unavailable",
        shown=False,
    ),
    Step("edit deployment web", r"web edited"),
    Step("get deployment web -o jsonpath={.spec.replicas}", r"^6$"),
    Step("get pods -l app=web", _rows(6, r"1/1 +Running"), until=True),
    Step("scale deployment web --replicas=1", r"web scaled"),
    Step("get pods -l app=web", _rows(1, r"1/1 +Running"), until=True),
    Step("set image deployment/web c=nginx:2", r"image updated"),
    Step("rollout status deployment web --timeout=120s", r"successfully rolled out"),
    Step("rollout history deployment web", r"(?s)1 .*2 ", shown=False),
    Step("rollout undo deployment web", r"rolled back"),
    Step("rollout status deployment web --timeout=120s", r"successfully rolled out"),
    Step("apply --server-side -f web.yaml", r"conflict", fails=True),
    Step("apply --server-side --force-conflicts -f web.yaml", r"serverside-applied"),
    Step("apply --server-side --field-manager=other -f other.yaml", r"(?i)conflict.*kubectl", fails=True, shown=False),
    Step("get pods -l app=web", _rows(3, r"1/1 +Running"), until=True),
    "Nodes",
    Step("label node n1 disk=fast", r"node/n1 labeled", shown=False),
    Step("taint node n1 dedicated=gpu:NoSchedule", r"node/n1 tainted"),
    Step(
        "describe node n1",
        r"(?s)disk=fast.*Taints: +dedicated=gpu:NoSchedule.*Allocatable:.*cpu: +4.*default +web-",
        shown=False,
    ),
    Step("taint node n1 dedicated:NoSchedule-", r"node/n1 untainted"),
    Step("cordon n1", r"node/n1 cordoned"),
    Step("get nodes", r"n1 +Ready,SchedulingDisabled"),
    Step("uncordon n1", r"node/n1 uncordoned"),
    "Draining a node under a budget",
    Step("apply -f agent.yaml", r"daemonset.apps/agent created"),
    Step("rollout status daemonset agent --timeout=120s", r"successfully rolled out"),
    Step("scale deployment web --replicas=4", r"web scaled"),
    Step("rollout status deployment web --timeout=120s", r"successfully rolled out"),
    Step("apply -f budget.yaml", r"poddisruptionbudget.policy/web created"),
    Step("get pdb", r"web +3 +N/A +1 ", until=True),
    Step("get pods --field-selector spec.nodeName=n2", _rows(4, r"(?:agent|p|web)\S* +1/1 +Running")),
    Step("drain n2", r"cannot delete DaemonSet-managed Pods", fails=True),
    Step(
        "drain n2 --ignore-daemonsets --force --timeout=120s",
        r"(?s)evicting pod default/web.*would violate the pod's disruption budget.*pod/web-\S+ evicted.*n2 (drained|evicted)",
    ),
    Step("get pods -l app=web -o wide", _rows(4, r"1/1 +Running .* n[01] "), until=True),
    Step("get pods --field-selector spec.nodeName=n2", _rows(1, r"agent-\w+ +1/1 +Running")),
    Step("get nodes", r"n2 +Ready,SchedulingDisabled"),
    Step("uncordon n2", r"node/n2 uncordoned"),
    Step("delete -f budget.yaml -f agent.yaml -f web.yaml", r'(?s)"web" deleted.*"agent" deleted.*"web" deleted'),
    Step("get pods", r"No resources found", until=True),
    "Mistakes",
    Step("create -f wrong.yaml", r'unknown field "(spec\.)?contaners"', fails=True),
    Step("get frogs", r"the server doesn't have a resource type", fails=True),
    Step("get pod frog", r'pods "frog" not found', fails=True),
    "Custom resources",
    Step("apply -f crd.yaml", r"created"),
    Step("wait --for=condition=established crd/widgets.example.com --timeout=60s", r"condition met"),
    Step("apply -f widget.yaml", r"widget.example.com/w created"),
    Step("get wg", r"(?s)NAME +SIZE.*w +3"),
    Step("scale widgets/w --replicas=4", r"scaled"),
    Step("get widgets w --subresource=scale", r"w +4 +"),
    Step("explain widgets.spec", r"size\s+<integer>"),
    Step("get crds", r"^widgets.example.com ", shown=False),
    Step("delete crd widgets.example.com", r"deleted"),
    "Namespaces",
    Step("create namespace team", r"namespace/team created"),
    Step("run x --image=pause -n team", r"pod/x created"),
    Step("create job once --image=pause -n team", r"job.batch/once created"),
    Step("get pods -A", _rows(2, r"team +(?:x|once-\w+) +1/1 +Running"), until=True),
    Step("delete namespace team --timeout=120s", r'namespace "team" deleted'),
    Step("get pods -A", r"No resources found"),
)
