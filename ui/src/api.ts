// Made by `make ui` from src/kubesched/dashboard/schema.py. Do not edit.

/**
 * Nodes that are added: ``count`` empty ones like the node ``like``.
 */
export interface AddNodes {
  kind: "add-nodes";
  like: string;
  count: number;
}
/**
 * Another node than the pod's own: by how much it lost, and what would have turned that.
 *
 * For a node that does not fit, ``total`` is null, and ``obstacles`` and ``remedies`` are about this node alone.
 */
export interface Alternative {
  node: string;
  fits: boolean;
  total: number | null;
  lostBy: number | null;
  differences: {
    [k: string]: number;
  };
  turns: Turn[];
  obstacles: ObstacleReport[];
  remedies: RemedyReport[];
}
/**
 * Change after which another node wins alone. It was evaluated.
 *
 * ``kind`` is ``weight`` (``plugin`` has the weight ``weight``), or ``evictions`` (the pods ``pods`` leave the node).
 */
export interface Turn {
  kind: "evictions" | "weight";
  text: string;
  plugin: string;
  weight: number | null;
  pods: string[];
}
/**
 * One thing that keeps pods off nodes, with its numbers; a node may have several. ``examples`` are names of nodes.
 *
 * ``data`` has the numbers for programs, as the plugin gives them.
 */
export interface ObstacleReport {
  plugin: string;
  text: string;
  nodes: number;
  examples: string[];
  data: {};
}
/**
 * Changes of a pod that help when all of them are made; ``nodes`` fit then, of which ``examples`` are some.
 */
export interface RemedyReport {
  changes: string[];
  nodes: number;
  examples: string[];
}
/**
 * Answer to changes that were carried out, in words, and what was refused.
 */
export interface Applied {
  done: string[];
  remarks: string[];
}
/**
 * Pod that was bound to the node of a row.
 */
export interface Binding {
  pod: string;
  row: number;
}
/**
 * Increment of a :class:`State`. Version ``n`` follows on ``n - 1``.
 *
 * ``rows`` are those whose pods changed; ``requested`` has the new amounts by resource, in the order of ``rows``. Of
 * ``bound`` and ``preempted`` the first are listed, ``bound_count`` and ``preempted_count`` count all.
 */
export interface Change {
  version: number;
  at: number;
  rows: number[];
  requested: {
    [k: string]: number[];
  };
  nodes: NodeChange[];
  bound: Binding[];
  boundCount: number;
  preempted: Eviction[];
  preemptedCount: number;
  sample: Sample | null;
}
/**
 * Node that came, went (empty name) or changed, whole. The resources are in the order of the columns, new ones at the end.
 */
export interface NodeChange {
  row: number;
  name: string;
  allocatable: {
    [k: string]: number;
  };
  requested: {
    [k: string]: number;
  };
  labels: {
    [k: string]: string;
  };
  taints: string;
  status: string;
}
/**
 * Preemption: ``victims`` on the node of a row made room for a pod. Names are ``namespace/name``.
 */
export interface Eviction {
  pod: string;
  row: number;
  victims: string[];
}
/**
 * Figures of the cluster at one time. Shares are 0 to 1; what is not known is left out.
 *
 * ``bound`` and ``failed`` count attempts since the sample before. ``wait_p50`` and ``wait_p99`` are seconds from the queue to the
 * binding, of pods bound since then; None if there were none.
 */
export interface Sample {
  at: number;
  queue: QueueCounts;
  onNodes: number;
  bound: number;
  failed: number;
  waitP50: number | null;
  waitP99: number | null;
  utilisation: {
    [k: string]: number;
  };
  fragmentation: {
    [k: string]: number;
  };
  cost: number | null;
}
/**
 * Pods without a node, by place.
 */
export interface QueueCounts {
  active: number;
  backoff: number;
  unschedulable: number;
  gated: number;
  permit: number;
  binding: number;
}
/**
 * Things that proposals can be about. ``kinds`` of proposals can be tried, ``applicable`` can be carried out.
 */
export interface Choices {
  kinds: string[];
  applicable: string[];
  workloads: Scalable[];
  profiles: Profile[];
}
/**
 * Workload that can be scaled: ``Kind/namespace/name``, and its replicas now.
 */
export interface Scalable {
  workload: string;
  replicas: number;
}
/**
 * Profile of the scheduler; ``name`` is its schedulerName.
 */
export interface Profile {
  name: string;
  scores: PluginWeight[];
}
/**
 * Score plugin of a profile, with its weight.
 */
export interface PluginWeight {
  plugin: string;
  weight: number;
}
/**
 * Condition of a node, such as ``Ready``.
 */
export interface Condition {
  type: string;
  status: string;
  message: string;
}
/**
 * Values by which candidates for preemption are compared, in this order; the smaller value wins, the later start.
 *
 * ``earliest_start`` is the start of the longest running victim of the highest priority, in seconds since the epoch.
 */
export interface Criteria {
  budgetViolations: number;
  highestPriority: number;
  prioritySum: number;
  victims: number;
  earliestStart: number;
}
/**
 * Overview: the program, and one run, or two side by side.
 */
export interface Dashboard {
  apiVersion: string;
  kind: string;
  version: string;
  runs: RunInfo[];
}
/**
 * Cluster or recording that is shown; ``id`` is its number in the paths.
 *
 * ``end`` is None for what goes on. ``what_if``: proposals can be tried; ``writable``: they can be carried out, too.
 * ``explains``: explanations are there for every pod at every moment, not only those that the recording has.
 */
export interface RunInfo {
  id: number;
  name: string;
  mode: "embedded" | "live" | "recording" | "snapshot";
  start: number;
  end: number | null;
  whatIf: boolean;
  writable: boolean;
  explains: boolean;
  remarks: string[];
}
/**
 * Nodes that are drained: the node of a name, or the nodes of a label selector.
 */
export interface Drain {
  kind: "drain";
  node: string;
  selector: string;
}
/**
 * Pods without which a pod fits a node; ``of`` is the number of pods on the node, ``nodes`` the node of each pod.
 *
 * ``frees`` is what they give back besides room, in words, such as claims with devices.
 */
export interface EvictionReport {
  node: string;
  pods: string[];
  of: number;
  nodes: string[];
  frees: string[];
}
/**
 * Explanation of pods: the document of ``kubesched explain`` and of a live scheduler.
 */
export interface Explanation {
  apiVersion: string;
  kind: string;
  podGroups: PodGroupReport[];
  pending: Pending[];
  notCreated: NotCreated[];
  placed: Placed[];
  evicted: PreemptionReport[];
  absent: string[];
  notes: string[];
}
/**
 * Pod group with members that need a node, or that was asked for; each number is that of a trial of the group.
 *
 * ``members`` exist, of which ``scheduled`` have a node, ``queued`` may be tried now, ``gated`` are held by scheduling
 * gates or other plugins, and ``deleting`` go away. ``fit`` of the queued members find a node in the placement where most do,
 * which is the first of ``placements``; ``lacking`` more are needed. ``obstacles`` are those of ``next``, the first member
 * that finds no node there when the others are on theirs.
 */
export interface PodGroupReport {
  group: string;
  state: "Incomplete" | "Missing" | "Scheduled" | "SchedulerError" | "SchedulingGated" | "Unschedulable" | "Waiting";
  summary: string;
  policy: "" | "basic" | "gang";
  minCount: number;
  topology: string;
  members: number;
  scheduled: number;
  queued: number;
  gated: number;
  deleting: number;
  fit: number;
  lacking: number;
  message: string;
  pods: string[];
  placements: PlacementReport[];
  placementsTried: number;
  next: string;
  obstacles: ObstacleReport[];
  remedies: GroupRemedyReport[];
  evictions: GroupEvictionReport | null;
  newNodes: GroupNewNodeReport[];
  hints: string[];
  remarks: string[];
}
/**
 * Placement of a pod group, and what came of its trial there.
 *
 * ``name`` is the value of the topology label; empty for all nodes. Of the members that need a node, ``fit`` found one;
 * ``lacking`` more are needed.
 */
export interface PlacementReport {
  name: string;
  nodes: number;
  fit: number;
  lacking: number;
  fits: boolean;
}
/**
 * Changes after which a pod group fits, all of them made to each member that needs a node, or to the group itself.
 */
export interface GroupRemedyReport {
  changes: string[];
  placement: string;
  fit: number;
}
/**
 * Pods without which a pod group fits a placement.
 *
 * ``lower_priority`` is True if all are of lower priority than the group, and its members may preempt.
 */
export interface GroupEvictionReport {
  placement: string;
  pods: string[];
  nodes: string[];
  lowerPriority: boolean;
}
/**
 * Nodes without which a pod group does not fit: ``count`` empty ones like the node ``like``, in ``placement``.
 */
export interface GroupNewNodeReport {
  like: string;
  count: number;
  placement: string;
  allocatable: {
    [k: string]: string | number;
  };
}
/**
 * Pods without a node for the same reasons; the largest group first.
 *
 * ``message`` is the text of the pod's PodScheduled condition. ``reasons`` has the first reason against each node,
 * ``obstacles`` every one. ``remedies``, ``evictions`` and ``new_nodes`` were tried against the cluster as it stands at the end;
 * ``hints`` has them in words. For pods with scheduling gates each set of ``remedies`` begins with the removal of the
 * gates; ``obstacles``, ``evictions`` and ``new_nodes`` are as they would be after that.
 */
export interface Pending {
  reason:
    "Deleting" | "NoNodes" | "SchedulerError" | "SchedulingGated" | "UnknownScheduler" | "Unschedulable" | "Waiting";
  workload: string;
  message: string;
  count: number;
  pods: string[];
  reasons: Reason[];
  gates: string[];
  schedulerName: string;
  hints: string[];
  obstacles: ObstacleReport[];
  remedies: RemedyReport[];
  evictions: EvictionReport | null;
  newNodes: NewNodeReport[];
  waitsFor: string[];
  remarks: string[];
  alternatives: Alternative[];
  queue: QueueState | null;
}
/**
 * Reason against some nodes. ``examples`` are the first few of the ``nodes`` nodes, by name.
 *
 * ``preemptable``: removing pods from these nodes could help (code Unschedulable, not …AndUnresolvable).
 */
export interface Reason {
  text: string;
  plugin: string;
  nodes: number;
  examples: string[];
  preemptable: boolean;
}
/**
 * Kind of node of which one more lets a pod run: an empty node like ``like``. There are ``nodes`` of the kind.
 *
 * Nodes of a kind have equal labels (but the hostname), taints and amounts. Large clusters are sampled.
 */
export interface NewNodeReport {
  like: string;
  nodes: number;
  allocatable: {
    [k: string]: string | number;
  };
}
/**
 * State of a pod in the scheduling queue of a live scheduler. Times are in seconds.
 */
export interface QueueState {
  place: "Active" | "Backoff" | "Binding" | "Gated" | "InFlight" | "Unschedulable" | "WaitingOnPermit";
  attempts: number;
  waited: number | null;
  ahead: number | null;
  backoff: number | null;
  retry: number | null;
  rejectedBy: string[];
  heldBy: string[];
  wakes: Wake[];
  nominatedNode: string;
}
/**
 * Event that makes a waiting pod worth another attempt, with the plugin that waits for it.
 */
export interface Wake {
  plugin: string;
  event: string;
  text: string;
}
/**
 * Workload whose pods cannot all be made, because quotas stand in the way of the next one.
 *
 * ``fits`` is the number of nodes that the next pod would fit now.
 */
export interface NotCreated {
  namespace: string;
  workload: string;
  wanted: number;
  existing: number;
  limits: QuotaLimit[];
  unasked: string[];
  fits: number;
  hints: string[];
  event: string;
}
/**
 * Resource of a quota of which too little is left for one more pod. Amounts are as Kubernetes writes them.
 *
 * ``needed`` is the limit with which all missing pods can be made.
 */
export interface QuotaLimit {
  quota: string;
  resource: string;
  asked: string;
  used: string;
  limit: string;
  needed: string;
}
/**
 * Pod with a node, and the choice among all nodes as it would be made now, without the pod on its node.
 */
export interface Placed {
  pod: string;
  workload: string;
  node: string;
  profile: string;
  phase: string;
  nodes: number;
  feasible: number;
  tied: number;
  rank: number | null;
  decided: string;
  best: NodeScore[];
  reasons: Reason[];
  alternatives: Alternative[];
  decision: Record | null;
  problems: ObstacleReport[];
  remarks: string[];
}
/**
 * Total of a node that fits, with the scores that it is the sum of.
 */
export interface NodeScore {
  node: string;
  total: number;
  scores: PluginScore[];
}
/**
 * Score of one plugin for one node: raw, normalised to 0…100, and weighted, which is what counts.
 */
export interface PluginScore {
  plugin: string;
  raw: number;
  normalized: number;
  weight: number;
  score: number;
}
/**
 * Record of one attempt.
 *
 * Attributes:
 * version: of the schema.
 * seq: number of the attempt within the scheduler's run, from 1.
 * at: time of the decision, in epoch seconds of the scheduler's clock.
 * pod: the pod.
 * profile: the pod's schedulerName.
 * attempt: number of the pod's attempts so far, this one included.
 * outcome: one of ``OUTCOMES``.
 * stage: for ``rejected`` and ``error`` after a node was chosen: Reserve, Permit, PreBind or Bind.
 * node: the chosen node; empty if there was none.
 * message: the text of the pod's event when it was not bound.
 * path: the way in which the search found its answer, such as "signature layer" or "full scan".
 * nodes: number of nodes in the cluster.
 * evaluated, feasible: number of nodes that were evaluated, and that fit.
 * ties: number of nodes with the greatest total, among which chance decided; 0 without a node.
 * top: the chosen node, and the next best ones.
 * verdicts: the reasons why nodes do not fit, by outcome. A pod that was bound has them only after a full scan.
 * preemption: the pods that were evicted for this one, or None.
 * nominated_node: the node that the pod was nominated to at the end.
 * queue_seconds: time in the queue since the last attempt or since the pod came.
 * search_seconds, binding_seconds: time from the pop to the decision, and from there to the end of the attempt.
 */
export interface Record {
  type: "record";
  seq: number;
  at: number;
  pod: PodRef;
  outcome: string;
  version?: number;
  profile?: string;
  attempt?: number;
  stage?: string;
  node?: string;
  message?: string;
  path?: string;
  nodes?: number;
  evaluated?: number;
  feasible?: number;
  ties?: number;
  top?: RankedNode[];
  verdicts?: Verdict[];
  preemption?: Preempted | null;
  nominatedNode?: string;
  queueSeconds?: number;
  searchSeconds?: number;
  bindingSeconds?: number;
}
/**
 * Pod of an attempt, in the version that was tried.
 */
export interface PodRef {
  namespace: string;
  name: string;
  uid: string;
  resourceVersion?: string;
}
/**
 * Node near the top: its total, and the final scores, weighted, by plugin. A single feasible node has no scores.
 */
export interface RankedNode {
  node: string;
  total?: number;
  scores?: {
    [k: string]: number;
  };
}
/**
 * Outcome that ``nodes`` nodes have in common: the plugin that rejected them, the code, and the reasons.
 */
export interface Verdict {
  plugin: string;
  code: string;
  reasons?: string[];
  nodes?: number;
}
/**
 * Preemption: the node, its victims as ``namespace/name``, and the number that violate a disruption budget.
 *
 * ``lost`` counts the other candidates by the criterion that decided against them, and ``not_helpful`` the nodes where
 * evictions would make no room, by reason. Both are None if they were not counted: only the first preemptions of a
 * second are.
 */
export interface Preempted {
  node: string;
  victims: string[];
  budgetViolations?: number;
  lost?: {
    [k: string]: number;
  } | null;
  notHelpful?: {
    [k: string]: number;
  } | null;
}
/**
 * Preemption: victims, node and preemptor, and why other nodes were not chosen.
 */
export interface PreemptionReport {
  pod: string;
  priority: number;
  node: string;
  victims: string[];
  budgetViolations: number;
  at: number;
  criteria: Criteria | null;
  budgets: string[];
  candidates: number;
  lost: LostCandidate[];
  notHelpful: {
    [k: string]: number;
  };
}
/**
 * Node whose victims were spared, and the criterion that decided against it.
 */
export interface LostCandidate {
  node: string;
  victims: string[];
  budgetViolations: number;
  why: string;
  criteria: Criteria | null;
}
/**
 * Nodes that fail at once, such as a zone: the node of a name, or the nodes of a label selector.
 */
export interface Failure {
  kind: "fail";
  node: string;
  selector: string;
}
/**
 * Answer to a request that failed: the reason in words.
 */
export interface Fault {
  error: string;
}
/**
 * Values of one label by row, as in :class:`TextColumn`. Labels with very many values are left out.
 */
export interface LabelColumn {
  key: string;
  values: string[];
  index: number[];
}
/**
 * Object that belongs to another. ``namespace`` is empty for an object without one.
 */
export interface Link {
  kind: string;
  namespace: string;
  name: string;
  state: string;
}
/**
 * Event in a pod's life, such as ``created``, ``tried``, ``rejected``, ``nominated``, ``bound``, ``started``, ``evicted``, ``finished``.
 */
export interface Moment {
  at: number;
  what: string;
  text: string;
  node: string;
}
/**
 * Nodes as columns. ``taints`` are in one text a node; ``status`` is ``Ready``, ``NotReady``, ``Cordoned`` or ``Failed``.
 */
export interface NodeColumns {
  names: string[];
  resources: ResourceColumn[];
  labels: LabelColumn[];
  taints: TextColumn;
  status: TextColumn;
}
/**
 * Amounts of one resource by row. ``devices``: the devices of one driver, free and in use, from resource slices.
 */
export interface ResourceColumn {
  name: string;
  unit: "bytes" | "millicores" | "units";
  devices: boolean;
  allocatable: number[];
  requested: number[];
}
/**
 * Texts by row: ``index`` has the position in ``values``; -1 for none.
 */
export interface TextColumn {
  values: string[];
  index: number[];
}
/**
 * Node: its facts and its pods, the largest first; ``left_out`` are not listed.
 */
export interface NodePage {
  row: number;
  name: string;
  status: string;
  allocatable: {
    [k: string]: number;
  };
  requested: {
    [k: string]: number;
  };
  labels: {
    [k: string]: string;
  };
  taints: string[];
  conditions: Condition[];
  pods: PodShare[];
  leftOut: number;
}
/**
 * Pod on a node, with what it asks for.
 */
export interface PodShare {
  namespace: string;
  name: string;
  workload: string;
  phase: string;
  priority: number;
  requests: {
    [k: string]: number;
  };
}
/**
 * Answer to a question: what would have happened once everything is quiet again.
 *
 * Lists have the first of their kind, ``counts`` has the numbers: ``moved``, ``placed``, ``pending``, ``evicted``, ``lost``. ``remarks`` say what could
 * not be done or was left out. ``nodes`` are the nodes afterwards, for the map. A pod that is there now is listed as ``namespace/name``; one
 * that is made by the changes, as ``new pod of Deployment web in namespace shop``, once for each.
 */
export interface Outcome {
  changes: string[];
  before: Totals;
  after: Totals;
  counts: {
    [k: string]: number;
  };
  newlyPending: string[];
  newlyPlaced: string[];
  moved: string[];
  why: string[];
  remarks: string[];
  seconds: number;
  nodes: NodeColumns;
}
/**
 * Counts of a cluster, before and after. Utilisation is a share, 0 to 1.
 */
export interface Totals {
  nodes: number;
  placed: number;
  pending: number;
  utilisation: {
    [k: string]: number;
  };
}
/**
 * Changes in the order of time, with versions from 1. In a recording they lead from one moment to another; of a live cluster
 * they are bindings and preemptions that it remembers.
 */
export interface Played {
  changes: Change[];
}
/**
 * Pods that were asked for, pending ones first; ``total`` counts those that are not listed, too.
 */
export interface PodList {
  pods: PodRow[];
  total: number;
}
/**
 * Pod in a list. ``state`` is the place of a pod that waits, else its phase.
 */
export interface PodRow {
  namespace: string;
  name: string;
  workload: string;
  state: string;
  node: string;
  priority: number;
  created: number | null;
}
/**
 * Pod: its facts and the events of its life in the order of time.
 *
 * ``complete``: the life is known from the start; otherwise events from before the program's start may be missing.
 */
export interface PodPage {
  pod: PodRow;
  uid: string;
  schedulerName: string;
  requests: {
    [k: string]: number;
  };
  links: Link[];
  life: Moment[];
  complete: boolean;
  message: string;
}
/**
 * Pods in one place of the queue that wait for one reason. ``pod`` is the one that waits longest, ``namespace/name``.
 *
 * ``until`` is the time at which the first of them is tried again without an event.
 */
export interface QueueGroup {
  workload: string;
  count: number;
  pod: string;
  why: string;
  rejectedBy: string[];
  attempts: number;
  waited: number | null;
  until: number | null;
}
/**
 * Place of the queue: its pods in groups, the largest first; ``left_out`` pods are in groups that are not listed.
 */
export interface QueuePlace {
  place: "Active" | "Backoff" | "Binding" | "Gated" | "Permit" | "Unschedulable";
  count: number;
  groups: QueueGroup[];
  leftOut: number;
  longest: number | null;
}
/**
 * Scheduling queue, by place.
 */
export interface Queues {
  at: number;
  places: QueuePlace[];
  rates: Rates;
}
/**
 * Pods per second, over the last ten seconds.
 */
export interface Rates {
  arriving: number;
  bound: number;
  failed: number;
}
/**
 * Workload with another number of replicas; ``workload`` is ``Kind/namespace/name``.
 */
export interface Scale {
  kind: "scale";
  workload: string;
  replicas: number;
}
/**
 * Weighted score of one plugin by row; 0 where the pod does not fit.
 */
export interface ScoreColumn {
  plugin: string;
  weight: number;
  scores: number[];
}
/**
 * Samples in the order of time, thinned out evenly, for charts.
 */
export interface Series {
  samples: Sample[];
}
/**
 * Everything about the cluster at one time. The change with version ``version + 1`` goes on from here.
 */
export interface State {
  version: number;
  at: number;
  nodes: NodeColumns;
  sample: Sample;
  profiles: Profile[];
}
/**
 * Reason against nodes, and the plugin that gave it.
 */
export interface VerdictReason {
  plugin: string;
  text: string;
  nodes: number;
}
/**
 * Verdict on each node for one pod, as if it were placed now. ``verdict`` has, by row: the position of the first reason
 * against the node, -1 where the pod fits, -2 for a free row.
 */
export interface Verdicts {
  pod: string;
  at: number;
  reasons: VerdictReason[];
  verdict: number[];
  own: number | null;
  scores: ScoreColumn[];
}
/**
 * Other weight of a score plugin.
 */
export interface Weight {
  kind: "weight";
  profile: string;
  plugin: string;
  weight: number;
}
/**
 * Question: these changes, in this order, at once.
 */
export interface WhatIf {
  changes: (Weight | Drain | Failure | AddNodes | Scale)[];
}
