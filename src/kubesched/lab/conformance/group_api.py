"""Golden vectors about the API of pod groups: answers of the API server, asked over HTTP on the loopback.

Each vector has a cluster of its own, with the feature gates of the recorded API server. Called by :mod:`.groups`. The
format is described in the README next to the golden files.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubesched.api.kinds import Kind, kind_of
from kubesched.api.wire import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kubesched.base.extras import MissingPackageError, needing
from kubesched.base.times import FixedClock
from kubesched.cluster.schema import drop_nulls
from kubesched.cluster.store import Store

from .comparison import Comparison

__all__ = ["compare_group_api"]

JSON = dict[str, Any]

_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PATCHES: Final = {"merge": MERGE_PATCH, "json": JSON_PATCH, "strategic": STRATEGIC_PATCH}
_VERSIONS: Final = ("scheduling.k8s.io/v1alpha2", "v1")
_REFUSED: Final = 300
_OTHER_PARSER: Final = "the wording of decoding errors is that of a particular parser"
#: Beginning of the dump of a changed object at the end of a message.
_DUMP: Final = "\n@@"
#: Members that the recorded program writes although they are absent.
_NULL: Final = re.compile(r',"\w+":null')


def compare_group_api(comparison: Comparison, vector: JSON) -> None:
    """Compare the answer to each operation. Members that are null count as absent."""
    try:
        from kubesched.cluster.http import HttpServer  # noqa: PLC0415 - an extra
    except MissingPackageError as error:
        comparison.leave("ops", str(error))
        return
    for phase, expected in zip(vector["scenario"]["phases"], vector["expected"]["phases"], strict=True):
        answers = asyncio.run(_answers(HttpServer, vector["scenario"]["gates"], phase["ops"]))
        for number, (operation, want, got) in enumerate(
            zip(phase["ops"], expected["exact"]["ops"], answers, strict=True)
        ):
            _compare(comparison, f"{phase['name']}: operation {number}", operation, drop_nulls(want), got)


def _compare(comparison: Comparison, where: str, operation: JSON, want: JSON, got: JSON) -> None:
    """Compare one answer. Members that the recorded one leaves out are absent in ours."""
    for member in sorted(want):
        found = got.get(member)
        wanted = want[member]
        if member == "message" and "json: cannot unmarshal" in wanted:
            comparison.leave(member, _OTHER_PARSER)
            continue
        if member == "causes":
            wanted, found = (sorted({_cause(one) for one in causes or ()}) for causes in (wanted, found))
        elif member == "message":
            wanted = _plain(wanted)
        comparison.check(member, f"{where}: {member}", wanted, found)
    if want["code"] < _REFUSED:
        for member in ("status", "finalizers"):
            if member not in want and operation["op"] != "table":
                comparison.check(member, f"{where}: {member}", None, got.get(member))


def _cause(cause: JSON) -> tuple[str, ...]:
    return cause.get("field", ""), cause.get("reason", ""), _plain(cause.get("message", ""))


def _plain(text: str) -> str:
    """Return a message without null members, and without the dump of an internal type at its end."""
    return _NULL.sub("", text.partition(_DUMP)[0])


# -- asking ------------------------------------------------------------------------------------------------


async def _answers(server_type: Any, gates: Mapping[str, bool], operations: list[JSON]) -> list[JSON]:
    with needing("the replay of requests about pod groups", "server"):
        import aiohttp  # noqa: PLC0415 - an extra

    features = [name for name, on in gates.items() if on]
    store = Store(FixedClock(), random=random.Random(1), features=features, **_AS_GIVEN)
    async with server_type(store, port=0) as server, aiohttp.ClientSession(server.url) as session:
        return [await _answer(session, operation) for operation in operations]


#: Admission as it was in the recordings: objects are stored as they are given.
_AS_GIVEN: Final[dict[str, Any]] = {"default_tolerations": False, "priority_admission": False}


async def _answer(session: Any, operation: JSON) -> JSON:
    method, path, headers, body, query = _request(operation)
    data = None if body is None else msgspec.json.encode(body)
    async with session.request(method, path, headers=headers, data=data, params=query) as response:
        answer = msgspec.json.decode(await response.read())
        return _read(operation, response.status, answer)


def _request(operation: JSON) -> tuple[str, str, dict[str, str], Any, dict[str, str]]:
    """Return method, path, headers, body and query of an operation."""
    op, obj = operation["op"], operation.get("object") or {}
    kind = _kind(operation)
    namespace = operation.get("namespace") or (obj.get("metadata") or {}).get("namespace", "")
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    path = f"{root}/namespaces/{namespace}/{kind.plural}"
    query = {"fieldValidation": "Strict"} if operation.get("strict") else {}
    if op == "create":
        return "POST", path, {"Content-Type": "application/json"}, obj, query
    if op == "table":
        return "GET", path, {"Accept": _TABLE}, None, query
    path = f"{path}/{operation['name']}"
    if subresource := operation.get("subresource"):
        path += f"/{subresource}"
    if op == "patch":
        patch_type = _PATCHES[operation.get("patchType", "merge")]
        return "PATCH", path, {"Content-Type": patch_type}, operation["patch"], query
    return {"get": "GET", "delete": "DELETE"}[op], path, {}, None, query


def _kind(operation: JSON) -> Kind:
    obj = operation.get("object")
    versions = (obj["apiVersion"],) if obj else _VERSIONS
    name = obj["kind"] if obj else operation["kind"]
    found = next((kind for version in versions if (kind := kind_of(version, name)) is not None), None)
    if found is None:
        raise ValueError(f"kind {name!r} is not known")
    return found


def _read(operation: JSON, code: int, answer: JSON) -> JSON:
    """Return an answer in the form of the recording."""
    if code >= _REFUSED:
        causes = [
            {name: value for name, value in cause.items() if name in ("reason", "field", "message")}
            for cause in (answer.get("details") or {}).get("causes", ())
        ]
        refusal = {"code": code, "reason": answer["reason"], "message": answer["message"]}
        return {**refusal, "causes": causes} if causes else refusal
    if operation["op"] == "table":
        columns = [column["name"] for column in answer["columnDefinitions"]]
        rows = [
            [cell for name, cell in zip(columns, row["cells"], strict=True) if name != "Age"] for row in answer["rows"]
        ]
        return {"code": code, "columns": columns, "rows": rows}
    if operation["op"] == "delete":
        return {"code": code}
    metadata, spec = answer["metadata"], answer["spec"]
    found = {"code": code, "generation": metadata.get("generation"), "finalizers": metadata.get("finalizers")}
    if answer["kind"] == "Pod":
        return {**found, "schedulingGroup": spec.get("schedulingGroup")}
    return {**found, "spec": spec, "status": answer.get("status")}
