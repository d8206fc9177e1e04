"""Proposals for an embedded or saved cluster: tried on a copy by another process, and carried out on the cluster itself."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kubesched.api.wire import ApiError
from kubesched.base.tasks import child
from kubesched.base.turns import in_turns
from kubesched.cluster.files import saving
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.scaling.drains import Drain as NodeDrain
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates

from ..live import profiles_of
from ..schema import Fault
from ..schema_what_if import AddNodes, Applied, Choices, Drain, Failure, Outcome, Proposal, Scale, Weight, WhatIf
from ..source import Refused
from .deeds import add_nodes, configuration_lines, cordon, fail, scale
from .process import Request
from .question import checked, chosen_nodes, scalables

__all__ = ["ClusterTrials"]

_log = logging.getLogger("kubesched.dashboard")

#: Real seconds that an answer may take.
_SECONDS: Final = 120.0
#: Nodes that are changed before other tasks get a turn.
_STEP: Final = 50
#: Most pods and nodes that are named in one answer.
_MOST_NAMED: Final = 20
_GOING: Final = "is being deleted, and has not stopped"
_KINDS: Final = ("weight", "drain", "fail", "add-nodes", "scale")


class _FailedError(Exception):
    """Process that ended without an answer. ``output`` is its standard error."""

    def __init__(self, output: str) -> None:
        super().__init__(output)
        self.output = output


class ClusterTrials:
    """Trials on a cluster. One question is answered at a time, and one is carried out at a time."""

    def __init__(
        self, embedded: Embedded, plugin_modules: Sequence[str] = (), gates: FeatureGates = DEFAULT_GATES
    ) -> None:
        """``plugin_modules`` and ``gates`` are the scheduler's."""
        self._embedded = embedded
        self._gates = gates
        self._modules = list(plugin_modules)
        self._asked = False
        self._applying: asyncio.Task[Applied] | None = None

    async def choices(self) -> Choices:
        applicable = ["drain", *(["fail"] if self._embedded.kubelets is not None else []), "add-nodes", "scale"]
        return Choices(
            kinds=list(_KINDS),
            applicable=applicable,
            workloads=scalables(self._embedded.store),
            profiles=profiles_of(self._embedded.scheduler),
        )

    # -- trying ------------------------------------------------------------------------------------------

    async def what_if(self, question: WhatIf) -> Outcome:
        embedded = self._embedded
        changes = checked(question, embedded.store, profiles_of(embedded.scheduler))
        if self._asked:
            raise Refused(429, "another question is being answered; ask again when it is done")
        self._asked = True
        try:
            with tempfile.TemporaryDirectory(prefix="kubesched-") as folder:
                path = Path(folder) / "cluster.jsonl"
                await in_turns(saving(embedded.store, path))
                config = embedded.scheduler.config
                request = Request(path, question, changes, self._modules, config, self._gates)
                return await self._answered(request)
        finally:
            self._asked = False

    async def _answered(self, request: Request) -> Outcome:
        try:
            data = pickle.dumps(request)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise Refused(501, f"the scheduler's configuration cannot be given to another process: {error}") from None
        process = _start()
        try:
            return await asyncio.to_thread(_communicate, process, data)
        except _FailedError as error:  # a process that is killed because the page has gone is none
            _log.error("a what-if failed (exit code %s): %s", process.returncode, ascii(error.output[-4000:]))
            last = error.output.strip().rpartition("\n")[2]
            raise Refused(500, f"the trial failed: {last[:300] or f'exit code {process.returncode}'}") from None
        finally:
            process.kill()  # also when the page has gone; a process that has ended does not mind

    # -- doing -------------------------------------------------------------------------------------------

    async def apply(self, question: WhatIf) -> Applied:
        embedded = self._embedded
        checked(question, embedded.store, profiles_of(embedded.scheduler))
        for one in question.changes:
            self._check_applicable(one)
        if self._applying is not None and not self._applying.done():
            raise Refused(429, "other changes are being carried out; ask again when they are done")
        # A page that goes meanwhile does not leave half of them.
        self._applying = child(self._carried_out(question), "dashboard-apply")
        return await asyncio.shield(self._applying)

    async def _carried_out(self, question: WhatIf) -> Applied:
        done: list[str] = []
        remarks: list[str] = []
        for one in question.changes:
            try:
                await self._do(one, done, remarks)
            except ApiError as error:
                remarks.append(f"The cluster refused it: {error}")
            except Refused as error:  # an earlier change took away what this one is about
                remarks.append(str(error))
        return Applied(done=done, remarks=remarks)

    def _check_applicable(self, one: Proposal) -> None:
        if isinstance(one, Weight):
            text = "the weights of a running scheduler stay; start it again with a configuration that has"
            raise Refused(409, f"{text} {configuration_lines(one)}")
        if isinstance(one, Failure) and self._embedded.kubelets is None:
            raise Refused(409, "no hollow kubelets run here, so no node can fail")

    async def _do(self, one: Proposal, done: list[str], remarks: list[str]) -> None:
        store = self._embedded.store
        match one:
            case Drain():
                await self._drain(chosen_nodes(one, store), done, remarks)
            case Failure():
                names = chosen_nodes(one, store)
                for index, name in enumerate(names):
                    fail(store, name)
                    await _turn(index)
                done.append(f"{_named(names)}: the kubelet has stopped; NotReady follows after 40 s")
            case AddNodes():
                left, names = one.count, []
                while left:
                    names += add_nodes(store, AddNodes(like=one.like, count=min(left, _STEP)))
                    left = one.count - len(names)
                    await asyncio.sleep(0)
                done.append(f"added {_named(names)}")
            case Scale():
                scale(store, one)
                done.append(f"{one.workload} has {one.replicas:,} replicas")
                if self._embedded.controllers is None:
                    remarks.append("No controllers run here: nothing makes or removes pods.")

    async def _drain(self, names: Sequence[str], done: list[str], remarks: list[str]) -> None:
        """Cordon the nodes, and evict their pods once, as far as budgets allow."""
        embedded, evicted = self._embedded, 0
        for index, name in enumerate(names):
            cordon(embedded.store, name)
            await _turn(index)
        blocked: list[str] = []
        for name in names:
            drain = NodeDrain(name, 0.0)
            drain.step(embedded, 0.0, at_rest=False)
            report = drain.report()
            evicted += len(report.evicted)
            blocked += [f"{name} keeps {one.pod}: it {one.why}." for one in report.blocked if one.why != _GOING]
            await asyncio.sleep(0)
        pods = "1 pod is" if evicted == 1 else f"{evicted:,} pods are"
        done.append(f"{_named(names)}: cordoned, and {pods} evicted")
        remarks += blocked[:_MOST_NAMED]
        if len(blocked) > _MOST_NAMED:
            remarks.append(f"{len(blocked) - _MOST_NAMED:,} more pods stay.")
        if blocked:
            remarks.append("To go on with the drain later, carry it out again.")


async def _turn(index: int) -> None:
    """Let other tasks have a turn after some steps."""
    if index % _STEP == _STEP - 1:
        await asyncio.sleep(0)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _start() -> subprocess.Popen[bytes]:
    """Start the process that answers. It finds the same modules as this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "kubesched.dashboard.trials.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,  # Ctrl-C ends it by its parent
    )


def _communicate(process: subprocess.Popen[bytes], data: bytes) -> Outcome:
    """Return the answer of the process.

    Raises:
        Refused: if it takes too long, or says no.
        _FailedError: if it fails.
    """
    try:
        answer, errors = process.communicate(data, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        text = f"the answer takes more than {_SECONDS:g} s, which is the most; ask about fewer changes, or simulate a saved copy"
        raise Refused(503, f"{text} (kubesched simulate --from FILE --events EVENTS)") from None
    try:
        return msgspec.json.decode(answer, type=Outcome)
    except msgspec.DecodeError:
        pass
    try:
        raise Refused(409, msgspec.json.decode(answer, type=Fault).error)
    except msgspec.DecodeError:
        raise _FailedError(errors.decode(errors="replace")) from None
