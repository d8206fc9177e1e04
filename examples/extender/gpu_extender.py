"""An HTTP extender in one file: it knows which GPUs of a node are free, and the scheduler does not.

Nodes say how many GPUs they have in the annotation ``example.com/gpus``; pods want ``example.com/gpu`` in their limits.
The extender filters and prioritizes the nodes for such pods, and binds them, so that it knows which are taken.

    python examples/extender/gpu_extender.py --port 8888 --server http://127.0.0.1:PORT

``--server`` is the API server of ``kubesched up``, where the binding is written.
"""

from __future__ import annotations

import argparse
from typing import Any

import aiohttp
from aiohttp import web

RESOURCE = "example.com/gpu"
ANNOTATION = "example.com/gpus"


class GpuExtender:
    """The three verbs. ``taken`` is the number of GPUs in use by node, ``total`` how many it has."""

    def __init__(self, api_server: str) -> None:
        self.api_server = api_server
        self.total: dict[str, int] = {}
        self.taken: dict[str, int] = {}
        self.wanted: dict[str, int] = {}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/gpu/filter", self.filter)
        app.router.add_post("/gpu/prioritize", self.prioritize)
        app.router.add_post("/gpu/bind", self.bind)
        return app

    async def filter(self, request: web.Request) -> web.Response:
        arguments = await request.json()
        wanted = gpus_wanted(arguments["Pod"])
        # The binding only names the pod, so remember what it wants.
        self.wanted[arguments["Pod"]["metadata"]["uid"]] = wanted
        kept: list[Any] = []
        failed: dict[str, str] = {}
        for node in arguments["Nodes"]["items"]:
            name, annotations = node["metadata"]["name"], node["metadata"].get("annotations") or {}
            self.total[name] = int(annotations.get(ANNOTATION, "0"))
            if self.free(name) >= wanted:
                kept.append(node)
            else:
                failed[name] = f"{self.free(name)} of {wanted} GPUs free"
        return web.json_response({"Nodes": {"items": kept}, "FailedNodes": failed})

    async def prioritize(self, request: web.Request) -> web.Response:
        """The fewer GPUs would be left, the better: large gaps are kept for large pods."""
        arguments = await request.json()
        wanted = gpus_wanted(arguments["Pod"])
        scores = []
        for node in arguments["Nodes"]["items"]:
            left = self.free(node["metadata"]["name"]) - wanted
            scores.append({"Host": node["metadata"]["name"], "Score": max(0, 10 - left) if left >= 0 else 0})
        return web.json_response(scores)

    async def bind(self, request: web.Request) -> web.Response:
        """The next pod may have been filtered before this binding arrived, so GPUs are counted here once more."""
        arguments = await request.json()
        namespace, name, uid, node = (arguments[key] for key in ("PodNamespace", "PodName", "PodUID", "Node"))
        wanted = self.wanted.get(uid, 0)
        if self.free(node) < wanted:
            return web.json_response({"Error": f"{self.free(node)} of {wanted} GPUs free on {node}"})
        self.taken[node] = self.taken.get(node, 0) + wanted
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"kind": "Node", "name": node},
        }
        url = f"{self.api_server}/api/v1/namespaces/{namespace}/pods/{name}/binding"
        async with aiohttp.ClientSession() as session, session.post(url, json=binding) as response:
            if response.status >= 300:
                self.taken[node] -= wanted
                return web.json_response({"Error": (await response.json()).get("message", "the binding was refused")})
        self.wanted.pop(uid, None)
        return web.json_response({"Error": ""})

    def free(self, node: str) -> int:
        return self.total.get(node, 0) - self.taken.get(node, 0)


def gpus_wanted(pod: Any) -> int:
    limits = ((container.get("resources") or {}).get("limits") or {} for container in pod["spec"]["containers"])
    return sum(int(limit.get(RESOURCE, "0")) for limit in limits)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8888)
    parser.add_argument("--server", required=True, help="the API server's address, for bindings")
    options = parser.parse_args()
    web.run_app(GpuExtender(options.server.rstrip("/")).app(), host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
