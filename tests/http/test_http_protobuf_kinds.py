"""Every kind in protobuf: its members are those of the schema, and any object reads as the JSON it represents."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from http_world import run, served
from hypothesis import given, settings
from hypothesis import strategies as st
from protobuf_kit import envelope, pb

from golden_kit import JSON, read
from kubesched.api.kinds import CORE_EVENTS, KINDS, SERVICES, Kind
from kubesched.cluster.http.bodies import PROTOBUF
from kubesched.cluster.http.protobuf import Member, decode_protobuf, message_table
from kubesched.cluster.schema import Type, root_type, types, unknown_paths

#: Every kind in each version that it is served in.
SERVED = [(kind, version) for kind in KINDS if not kind.custom for version in (kind.version, *kind.also_served)]
IDS = [f"{kind}-{version}" for kind, version in SERVED]
#: A message, and what it is in JSON.
Twin = tuple[bytes, Any]
_DEPTH = 9


def _root(kind: Kind, version: str) -> tuple[str, str]:
    """The ``apiVersion`` and the message of a kind."""
    api_version = f"{kind.group}/{version}" if kind.group else version
    full_name = message_table().names[api_version].get(kind.kind)
    assert full_name is not None, f"{api_version} {kind.kind} has no message"
    return api_version, full_name


def _members(full_name: str) -> dict[int, Member]:
    """The members of a message by number, without the one that only older clients write."""
    return {number: one for number, one in message_table().members[full_name].items() if one.name != "clusterName"}


def _flat(full_name: str) -> Iterator[Member]:
    """The members of the JSON object that a message becomes."""
    for member in _members(full_name).values():
        yield from _flat(member.type) if member.inline else (member,)


def _compare(full_name: str, type_: Type, seen: set[tuple[str, str]], differing: list[str]) -> None:
    if (full_name, type_.name) in seen:
        return
    seen.add((full_name, type_.name))
    members = {member.name: member for member in _flat(full_name)}
    fields = type_.fields
    # The type of an object is in the envelope.
    lone = (
        members.keys() ^ fields.keys() - {"apiVersion", "kind"}
        if "metadata" in fields
        else members.keys() ^ fields.keys()
    )
    if lone:
        differing.append(f"{full_name} {type_.name}: {sorted(lone)}")
    for name in members.keys() & fields.keys():
        field, member = fields[name], members[name]
        if field.type not in ("any", "str") and (field.shape == "list", field.shape == "map") != (
            member.shape == "[",
            member.shape == "{",
        ):
            differing.append(f"{full_name}.{name}: {member.shape}{member.type}, {field}")
        inner = types().get(field.type)
        if inner is not None:
            _compare(member.type, inner, seen, differing)


@pytest.mark.parametrize(("kind", "version"), SERVED, ids=IDS)
def test_the_members_of_every_message_are_the_fields_of_its_type(kind: Kind, version: str) -> None:
    root = root_type(kind.group, kind.kind, version)
    assert root is not None
    seen: set[tuple[str, str]] = set()
    differing: list[str] = []
    _compare(_root(kind, version)[1], root, seen, differing)
    assert differing == []
    assert len(seen) > 1


# -- round trips -------------------------------------------------------------------------------------------


_TEXT = st.text(max_size=6)
_INT = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 3)
_SECONDS = st.integers(-(10**9), 10**11)
_JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | _TEXT, lambda inner: st.lists(inner, max_size=2))


def _time(seconds: int) -> Twin:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return pb(1, seconds) + pb(2, 0), moment.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")


def _micro_time(seconds: int, micros: int) -> Twin:
    return pb(1, seconds) + pb(2, micros * 1000), f"{_time(seconds)[1][:-1]}.{micros:06d}Z"


def _raw(value: Any) -> Twin:
    # A null member is an absent one.
    return pb(1, json.dumps(value)), value


def _int_or_string(value: int | str) -> Twin:
    if isinstance(value, str):
        return pb(1, 1) + pb(2, 0) + pb(3, value), value
    return pb(1, 0) + pb(2, value) + pb(3, ""), value


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": _TEXT,
    "int": _INT,
    "bool": st.booleans(),
    "bytes": st.binary(max_size=6),
    "double": st.floats(allow_nan=False, allow_infinity=False),
}
_VALUES: dict[str, st.SearchStrategy[Twin]] = {
    "Quantity": st.sampled_from(["0", "100m", "4Gi", ""]).map(lambda text: (pb(1, text), text)),
    "Time": st.just((b"", None)) | _SECONDS.map(_time),
    "MicroTime": st.just((b"", None)) | st.builds(_micro_time, _SECONDS, st.integers(0, 999_999)),
    "IntOrString": (st.integers(-(2**31), 2**31 - 1) | _TEXT).map(_int_or_string),
    **dict.fromkeys(("FieldsV1", "RawExtension", "JSON"), st.just((b"", None)) | _JSON.map(_raw)),
    "ExtraValue": st.lists(_TEXT, max_size=3).map(lambda texts: (b"".join(pb(1, text) for text in texts), texts)),
}
Draw = Callable[[st.SearchStrategy[Any]], Any]


def _value(draw: Draw, member: Member, depth: int) -> tuple[bytes | str | float, Any]:
    """One value: its content on the wire, and in JSON."""
    scalar = _SCALARS.get(member.type)
    if scalar is not None:
        drawn = draw(scalar)
        return drawn, base64.b64encode(drawn).decode() if isinstance(drawn, bytes) else drawn
    name = member.type.rpartition("_")[0]
    if name in _VALUES:
        twin: Twin = draw(_VALUES[name])
        return twin
    content, data = _object(draw, member.type, depth + 1)
    if name == "JSONSchemaPropsOrBool":
        return (content, data["schema"]) if "schema" in data else (pb(1, 0), False)
    if name == "JSONSchemaPropsOrArray":
        return (content, data["schema"]) if "schema" in data else (pb(2, b""), [{}])
    if name == "JSONSchemaPropsOrStringArray":
        return (content, data["schema"]) if "schema" in data else (pb(2, "a") + pb(2, ""), ["a", ""])
    if name == "PersistentVolumeClaim":
        data = {"apiVersion": "v1", "kind": name, **data}
    return content, data


def _object(draw: Draw, full_name: str, depth: int) -> tuple[bytes, dict[str, Any]]:
    """A message with some of its members, in any order; zeros too."""
    members = _members(full_name)
    if not members or depth > _DEPTH:
        return b"", {}
    content = b""
    data: dict[str, Any] = {}
    for number in draw(st.lists(st.sampled_from(sorted(members)), unique=True, max_size=4)):
        member = members[number]
        if member.shape == "[":
            twins = [_value(draw, member, depth) for _ in range(draw(st.integers(1, 2)))]
            content += b"".join(pb(number, value) for value, _ in twins)
            data[member.name] = [plain for _, plain in twins]
        elif member.shape:
            entries = {key: _value(draw, member, depth) for key in draw(st.sets(_TEXT, min_size=1, max_size=2))}
            content += b"".join(pb(number, pb(1, key) + pb(2, value)) for key, (value, _) in entries.items())
            data[member.name] = {key: plain for key, (_, plain) in entries.items()}
        else:
            value, plain = _value(draw, member, depth)
            content += pb(number, value)
            if member.inline:
                data.update(plain)
            elif plain is not None and (value or member.kept):
                data[member.name] = plain
    return content, data


@pytest.mark.parametrize(("kind", "version"), SERVED, ids=IDS)
@given(drawn=st.data())
@settings(max_examples=20)
def test_any_object_reads_as_the_json_it_represents(kind: Kind, version: str, drawn: st.DataObject) -> None:
    api_version, full_name = _root(kind, version)
    content, data = _object(drawn.draw, full_name, 0)
    decoded = decode_protobuf(envelope(api_version, kind.kind, content))
    assert json.dumps(decoded, sort_keys=True) == json.dumps(
        {**data, "apiVersion": api_version, "kind": kind.kind}, sort_keys=True
    )
    if version == kind.version:
        assert unknown_paths(root_type(kind.group, kind.kind), decoded) == []


# -- over HTTP ---------------------------------------------------------------------------------------------


#: Members of metadata that a client leaves to the server, by their numbers.
_OF_THE_SERVER = {"namespace": 3, "uid": 5, "resourceVersion": 6, "managedFields": 17}


def _recorded() -> list[tuple[Kind, JSON]]:
    """The first recorded object of each kind that is served."""
    first: dict[tuple[str, str], JSON] = {}
    for vector in read("protobuf"):
        first.setdefault((vector["expected"]["apiVersion"], vector["expected"]["kind"]), vector)
    return [(kind, first[key]) for kind in KINDS if (key := (kind.api_version, kind.kind)) in first]


def _as_new(kind: Kind, vector: JSON) -> tuple[bytes, JSON]:
    """A recorded object as a client creates it, in both forms."""
    table, expected = message_table(), vector["expected"]
    unknown: Any = table.message(
        table.names["runtime"]["Unknown"], base64.b64decode(vector["scenario"]["body"]).removeprefix(b"k8s\0")
    )
    message: Any = table.message(table.names[kind.api_version][kind.kind], unknown.f2)
    for number in _OF_THE_SERVER.values():
        message.f1.ClearField(f"f{number}")
    metadata = {name: value for name, value in expected["metadata"].items() if name not in _OF_THE_SERVER}
    return envelope(kind.api_version, kind.kind, message.SerializeToString()), {**expected, "metadata": metadata}


RECORDED = _recorded()


@pytest.mark.parametrize(("kind", "vector"), RECORDED, ids=[str(kind) for kind, _ in RECORDED])
def test_an_object_is_created_alike_in_both_forms(kind: Kind, vector: JSON) -> None:
    raw, data = _as_new(kind, vector)
    place = "namespaces/default/" if kind.namespaced else ""
    path = f"/api{'s' if kind.group else ''}/{kind.api_version}/{place}{kind.plural}"

    async def main() -> None:
        async with served() as api:
            in_protobuf = await api("POST", path, raw=raw, type=PROTOBUF)
        async with served() as api:
            in_json = await api.post(path, data)
        assert in_protobuf.status == in_json.status
        assert in_protobuf.data == in_json.data
        # The recorded Service has an address of another cluster's range, the event is about a pod of another namespace.
        assert in_json.status == (422 if kind in (SERVICES, CORE_EVENTS) else 201)

    run(main())
