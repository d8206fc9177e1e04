"""Reference page of the dashboard's API, and the JSON schema of its documents. Caller: :mod:`.reference`."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubesched.dashboard import schema, schema_what_if
from kubesched.dashboard.json_schema import documents_schema

from .reference_code import markdown_of

__all__ = ["dashboard_page", "dashboard_schema"]

_INTRO: Final = """\
The page of the [dashboard](dashboard.md) shows what this API answers, and nothing else: programs can use it, too. `kubesched up --ui`,
`kubesched run --ui` and `kubesched view` serve it under `/ui/api/v1/`. Answers are JSON. Within `v1` fields are only ever added.
[dashboard-schema.json](dashboard-schema.json) is the JSON schema of all documents."""

_PATHS: Final = """\
## Paths

`ID` is the number of a run in the `Dashboard` document; `NS` is a namespace, `NAME` the name of a pod or node.

| request | answer |
|---|---|
| `GET dashboard` | `Dashboard` |
| `GET runs/ID/state?at=` | `State` |
| `GET runs/ID/changes?since=` | server-sent events, see below |
| `GET runs/ID/played?from=&to=&most=` | `Played`, at most 5,000 changes; of a live cluster the bindings and preemptions that it remembers, of the last 20,000 attempts |
| `GET runs/ID/series` | `Series` of at most 1,200 samples |
| `GET runs/ID/queues?at=` | `Queues` |
| `GET runs/ID/pods?q=&namespace=&state=&node=&workload=&limit=&at=` | `PodList`: `q` is part of the name, the rest is equal; `limit` is 100, at most 1,000 |
| `GET runs/ID/pods/NS/NAME?at=` | `PodPage` |
| `GET runs/ID/nodes/NAME?at=` | `NodePage` |
| `GET runs/ID/verdicts/NS/NAME?at=` | `Verdicts` |
| `GET runs/ID/explain/pods/NS/NAME?node=&at=` | Explanation, as `kubesched explain -o json` writes it; also `explain/pending`, `explain/nodes/NAME` and `explain/podgroups/NS/NAME` |
| `GET runs/ID/what-if` | `Choices` |
| `POST runs/ID/what-if`, body `WhatIf` | `Outcome` |
| `POST runs/ID/apply`, body `WhatIf` | `Applied` |

`at` is a moment of a recording in seconds; without it the answer is about now, or about the end. A live cluster has no past: it refuses `at`. Unknown parameters are refused.
HEAD is answered like GET. Answers from 1 KiB on are compressed with `Accept-Encoding: gzip`.

What is asked of a live scheduler is answered in steps. While the scheduler has work, a state takes at most a fifth of the event loop's time, and all other answers together 3 %.

## Changes

`GET runs/ID/changes` streams `text/event-stream`:

```text
event: change
id: 1795871160006
data: {"version": 1795871160006, …}

event: resync
data: {}
```

A `Change` with version `n` follows on the state or change with version `n - 1`. A page asks for the state, opens the stream with `?since=VERSION` of it, and applies each change
whose version is greater than its own. After `resync` it asks for the state again, keeps the stream open, and leaves out changes whose versions the state has already. `Last-Event-ID`, which browsers send when they connect
again, goes before `since`. There is at most one change in a quarter of a second, and a comment line after 15 s without one. The last 64 changes are kept for pages that come back, within 1 MiB;
the same number may wait for a page that reads slowly. Beyond that it gets `resync`. At most 32 streams are open at a time; more get 503.

Rows: a `NodeChange` tells everything about one node. A row beyond the end of the columns lengthens them. A name of a resource or label that has no column yet adds one. At most 64 resources and 64 labels
have a column: those of the most nodes. A label of more than 1,000 values is left out if fewer than four nodes share one, on average: it does not group. `devices of DRIVER` are the devices of a driver in resource slices that name a node.

## Errors

An answer with a status from 400 on is a `Fault`: `{"error": "one sentence"}`.

| status | when |
|---|---|
| 400 | a parameter or a body that makes no sense; `at` of a live cluster |
| 401 | not logged in (on loopback); no valid token or certificate (secure port, with a Kubernetes Status as the body) |
| 403 | a wrong Host or Origin, a missing `X-Kubesched: 1`, proposals where nothing can be tried; on the secure port: no permission |
| 404 | no such path, run, pod or node |
| 405, 413, 414, 415 | another method, a body of more than 64 KiB, a path or query that is too long, a body that is no JSON |
| 409 | no profile is for the pod's scheduler |
| 429, 503 | too many questions or streams, or the scheduler has not read the cluster yet; `Retry-After` may say when to ask again |

## Clients

On loopback a session is a cookie. The link that the command prints sets it:

```console
$ curl -c session 'http://127.0.0.1:10260/ui/?key=…'
$ curl -b session http://127.0.0.1:10260/ui/api/v1/runs/0/queues
$ curl -b session -N http://127.0.0.1:10260/ui/api/v1/runs/0/changes
```

A POST needs the header `X-Kubesched: 1`, `Content-Type: application/json`, and an `Origin` header with the page's own origin. The secure port of `kubesched run` takes the tokens and
certificates that it takes for metrics, and no POST.

## Documents

Times are in seconds: since the epoch for a live cluster, since the start for a recording of virtual time. Amounts of cpu are in millicores, of memory and storage in bytes, of
everything else in units. Shares are 0 to 1."""

#: Comment that documents a field.
_COMMENT: Final = re.compile(r"^    #: ?(.*)$")
_FIELD: Final = re.compile(r"^    (\w+): ")


def dashboard_page(made: str) -> str:
    """Return the page: paths, events, errors, and a table for each document."""
    documents = {**vars(schema), **vars(schema_what_if)}
    names = sorted({*schema.__all__, *schema_what_if.__all__} - {"Part"})
    kinds = [kind for name in names if isinstance(kind := documents[name], type)]
    return "\n\n".join(["# API of the dashboard", _INTRO, made, _PATHS, *map(_document, kinds)]) + "\n"


def dashboard_schema() -> str:
    """Return the JSON schema of all documents."""
    return json.dumps(documents_schema(), indent=1) + "\n"


def _document(kind: type[msgspec.Struct]) -> str:
    comments = _comments(kind)
    hints = typing.get_type_hints(kind)
    rows: list[Sequence[str]] = []
    tag = kind.__struct_config__.tag
    if isinstance(tag, str):
        rows.append((f"`{kind.__struct_config__.tag_field}`", f'`"{tag}"`', "", ""))
    rows += [
        (f"`{field.encode_name}`", _named(hints[field.name]), _default(field), comments.get(field.name, ""))
        for field in msgspec.structs.fields(kind)
    ]
    lines = ["| field | type | default | meaning |", "|---|---|---|---|", *map(_line, rows)]
    text = markdown_of(kind)
    for field in msgspec.structs.fields(kind):
        text = text.replace(f"`{field.name}`", f"`{field.encode_name}`")
    return f"### `{kind.__name__}`\n\n{text}\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _comments(kind: type) -> dict[str, str]:
    """Return the comments above the fields of a type."""
    found: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if comment := _COMMENT.match(line):
            said.append(comment[1])
        else:
            if said and (name := _FIELD.match(line)):
                found[name[1]] = " ".join(said)
            said = []
    return found


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{json.dumps(msgspec.to_builtins(field.default))}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{json.dumps(msgspec.to_builtins(field.default_factory()))}`"
    return ""


def _named(hint: Any) -> str:
    """Return a type as people read it: ``list of Sample``, ``number or null``."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(map(str, parts))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_named(part) for part in parts)
    if origin is list:
        return f"list of {_named(parts[0])}"
    if origin is dict:
        return f"{_named(parts[1])} by name"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return plain.get(hint, getattr(hint, "__name__", str(hint)))
