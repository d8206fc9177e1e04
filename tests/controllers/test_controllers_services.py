"""Services: endpoint slices from ready pods, and hollow load balancers."""

from __future__ import annotations

import asyncio

from controllers_world import DEPLOYMENTS, Data, World, kind, play, pod_template, workload

from kubesched.api.kinds import NAMESPACES

SERVICES, SLICES = kind("services"), kind("endpointslices", "discovery.k8s.io")
ACCOUNTS, CONFIG_MAPS = kind("serviceaccounts"), kind("configmaps")


def service(name: str = "web", **spec: object) -> Data:
    return {"metadata": {"name": name}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], **spec}}


def slices(world: World) -> list[Data]:
    return [item.data() for item in world.store.list(SLICES, "default").items]


def endpoints(world: World) -> dict[str, bool]:
    """Pods by name, and whether they are ready."""
    found = {}
    for one in slices(world):
        for endpoint in one["endpoints"]:
            found[endpoint["targetRef"]["name"]] = endpoint["conditions"]["ready"]
    return found


def test_slices_follow_the_pods_that_a_service_selects() -> None:
    async def scenario(world: World) -> None:
        world.create(SERVICES, service())
        await world.settle()
        (empty,) = slices(world)
        assert (empty["endpoints"], empty["ports"], empty["addressType"]) == ([], [], "IPv4")
        assert empty["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
        world.create(DEPLOYMENTS, workload("web", 3))
        world.create(DEPLOYMENTS, workload("other", 1))
        await world.settle()
        pods = {pod.name: pod for pod in world.pods(app="web")}
        assert endpoints(world) == dict.fromkeys(pods, True)
        (full,) = slices(world)
        assert full["metadata"]["uid"] == empty["metadata"]["uid"], "the slice is filled, not replaced"
        assert full["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
        for endpoint in full["endpoints"]:
            pod = pods[endpoint["targetRef"]["name"]]
            assert endpoint["nodeName"] == pod.spec.node_name
            assert endpoint["zone"] in ("a", "b")
            assert endpoint["targetRef"]["uid"] == pod.uid
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
        await world.settle()
        assert list(endpoints(world)) == [pod.name for pod in world.pods(app="web")]
        world.store.delete(SLICES, "default", full["metadata"]["name"])
        await world.settle()
        assert list(endpoints(world)) == [pod.name for pod in world.pods(app="web")], "a deleted slice comes back"
        world.store.delete(SERVICES, "default", "web")
        await world.settle()
        assert slices(world) == []

    play(scenario)


def test_a_pod_that_is_being_deleted_serves_but_is_not_ready() -> None:
    async def scenario(world: World) -> None:
        world.create(SERVICES, service())
        world.create(DEPLOYMENTS, workload("web", 1, pod_template("web", terminationGracePeriodSeconds=60)))
        await world.settle()
        (pod,) = world.pods(app="web")
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
        await asyncio.sleep(5)
        (endpoint,) = slices(world)[0]["endpoints"]
        assert endpoint["conditions"] == {"ready": False, "serving": True, "terminating": True}
        await world.settle()
        assert endpoints(world) == {}
        assert pod.name

    play(scenario)


def test_more_than_a_hundred_pods_fill_several_slices() -> None:
    async def scenario(world: World) -> None:
        world.create(SERVICES, service())
        world.create(DEPLOYMENTS, workload("web", 205, pod_template("web", cpu="1m")))
        await world.settle()
        assert sorted(len(one["endpoints"]) for one in slices(world)) == [5, 100, 100]
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 20}})
        await world.settle()
        assert [len(one["endpoints"]) for one in slices(world)] == [20]

    play(scenario)


def test_named_ports_are_those_of_each_pod() -> None:
    def template(app: str, number: int) -> Data:
        made = pod_template("web", image=app)
        made["metadata"]["labels"]["part"] = app
        made["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": number}]
        return made

    async def scenario(world: World) -> None:
        ports = [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": "none"}]
        world.create(SERVICES, service(ports=ports))
        for app, number in (("one", 8080), ("two", 9090)):
            manifest = workload(app, 1, template(app, number))
            manifest["spec"]["selector"] = {"matchLabels": {"part": app}}
            world.create(DEPLOYMENTS, manifest)
        await world.settle()
        assert sorted(one["ports"][0]["port"] for one in slices(world)) == [8080, 9090]
        assert all(len(one["ports"]) == 1 for one in slices(world))

    play(scenario)


def test_services_without_a_selector_have_no_slices_and_load_balancers_an_address() -> None:
    async def scenario(world: World) -> None:
        world.create(SERVICES, service("manual", selector=None))
        world.create(SERVICES, service("name", type="ExternalName", externalName="a.b", ports=None))
        world.create(SERVICES, service("other", type="LoadBalancer", loadBalancerClass="example.com/x", selector=None))
        made = world.create(SERVICES, service("front", type="LoadBalancer", selector=None))
        await world.settle()
        assert slices(world) == []
        assert world.get(SERVICES, "other")["status"] == {"loadBalancer": {}}
        (ingress,) = world.get(SERVICES, "front")["status"]["loadBalancer"]["ingress"]
        assert ingress["ip"].split(".")[2:] == made["spec"]["clusterIP"].split(".")[2:]
        world.patch(SERVICES, "front", {"spec": {"type": "ClusterIP"}})
        await world.settle()
        assert world.get(SERVICES, "front")["status"]["loadBalancer"] == {}

    play(scenario)


def test_every_namespace_has_its_default_account() -> None:
    async def scenario(world: World) -> None:
        world.create(NAMESPACES, {"metadata": {"name": "team"}})
        await world.settle()
        assert world.names(ACCOUNTS, "team") == world.names(ACCOUNTS, "default") == ["default"]
        world.store.delete(ACCOUNTS, "team", "default")
        await world.settle()
        assert world.names(ACCOUNTS, "team") == ["default"]
        world.store.delete(NAMESPACES, "", "team")
        await world.settle()
        assert not world.exists(NAMESPACES, "team")

    play(scenario, nodes=0)


def test_every_namespace_has_the_root_certificate_again_when_it_was_deleted_or_changed() -> None:
    name = "kube-root-ca.crt"

    async def scenario(world: World) -> None:
        world.create(NAMESPACES, {"metadata": {"name": "team"}})
        await world.settle()
        assert world.get(CONFIG_MAPS, name, "team")["data"] == {"ca.crt": "PEM"}
        world.store.delete(CONFIG_MAPS, "team", name)
        world.patch(CONFIG_MAPS, name, {"data": {"ca.crt": "other", "more": "x"}})
        await world.settle()
        for namespace in ("team", "default", "kube-system"):
            assert world.get(CONFIG_MAPS, name, namespace)["data"] == {"ca.crt": "PEM"}

    play(scenario, nodes=0, root_ca="PEM")


def test_without_an_api_server_there_is_no_root_certificate() -> None:
    async def scenario(world: World) -> None:
        await world.settle()
        assert world.names(CONFIG_MAPS) == []

    play(scenario, nodes=0)
