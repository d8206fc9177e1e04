"""Access to an API server: what kubeconfigs, flags and service accounts lead to, and that nothing secret is shown."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from kubesched.client import access, credential_sources
from kubesched.client.access import AccessError, load_access, load_kubeconfig
from kubesched.lab.simulate.run.virtual_time import run_virtual

T = TypeVar("T")

KUBECONFIG = """\
current-context: c
contexts:
- {name: c, context: {cluster: k, user: u, namespace: team}}
- {name: other, context: {cluster: far, user: u}}
clusters:
- {name: k, cluster: {server: 'http://near:1'}}
- {name: far, cluster: {server: 'http://far:2/', proxy-url: 'http://proxy:3'}}
users:
- {name: u, user: USER}
"""
COUNTER = """\
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
number = int(file.read_text()) + 1 if file.exists() else 1
file.write_text(str(number))
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": f"secret-{number}"}}))
"""


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def kubeconfig(folder: Path, user: str) -> Path:
    path = folder / "config"
    path.write_text(KUBECONFIG.replace("USER", user))
    return path


def plugin(folder: Path, script: str) -> str:
    (folder / "plugin.py").write_text(script)
    arguments = f"['{folder / 'plugin.py'}', '{folder / 'count'}']"
    return f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {sys.executable}, args: {arguments}}}}}"


def test_a_context_names_server_namespace_proxy_and_token(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "{token: abc}")
    near, far = run(load_kubeconfig(path)), run(load_kubeconfig(path, "other"))
    assert (near.url, near.namespace, near.proxy, near.ssl) == ("http://near:1", "team", "", None)
    assert (far.url, far.namespace, far.proxy) == ("http://far:2", "default", "http://proxy:3")
    assert run(near.credentials.header()) == "Bearer abc"


def test_several_files_are_merged_and_master_overrides_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    whole = KUBECONFIG.replace("USER", "{token: abc}")
    start = whole.index("users:")
    first.write_text(whole[:start])
    second.write_text(whole[start:])
    monkeypatch.setenv("KUBECONFIG", f"{first}:{second}")
    found = run(load_kubeconfig())
    assert run(found.credentials.header()) == "Bearer abc"
    assert run(load_access(f"{first}:{second}", "https://elsewhere:6443")).url == "https://elsewhere:6443"
    assert run(load_access("", "elsewhere:80")).url == "http://elsewhere:80"


#: Kubeconfigs with a value that is hostile or of a wrong form: address, more of the cluster, the user, the message.
WRONG: list[tuple[str, str, str, str]] = [
    ("https://a", "", "{tokenFile: /dev/zero}", "user 'u': tokenFile: /dev/zero: is no regular file"),
    ("https://a", "", "{tokenFile: pipe}", "user 'u': tokenFile: pipe: is no regular file"),
    ("https://a", "", "{tokenFile: large}", "user 'u': tokenFile: large: is larger than 4194304 bytes"),
    ("https://a", "", "{client-certificate: gone, client-key: gone}", "user 'u': client-certificate: gone: No such file"),
    ("https://a", ", certificate-authority: pipe", "{}", "cluster 'c': certificate-authority: pipe: is no regular file"),
    ("https://a", ", certificate-authority-data: LS0tLS1CRUdJTiBYLS0tLS0=", "{}", "certificate cannot be used: certificate-authority: "),
    ("https://a", "", "{client-certificate-data: LS0tLS1CRUdJTiBYLS0tLS0=, client-key-data: LS0tLS1CRUdJTiBYLS0tLS0=}", "used: client-certificate or client-key: "),
    ("http://a", "", '{token: "a\\nhunter2"}', "user 'u': token: it has a line break or another control character"),
    ("http://a", "", "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /gone}}", "user 'u': exec.command: '/gone': no such program"),
    ("http://a", "", "hunter2", "users[0].user: expected a mapping, got a text"),
    ("http://a", "", "{token: [hunter2]}", "users[0].user.token: expected a text, got a list"),
    ("5", "", "{}", "clusters[0].cluster.server: expected a text, got a number"),
    ("https://a", ", certificate-authority-data: abc", "{}", "cluster 'c': certificate-authority-data: expected PEM text in base64"),
    ("https://a", "", "{client-certificate-data: YWJj}", "user 'u': client-certificate-data: expected PEM text (-----BEGIN"),
    ("https://a", ', insecure-skip-tls-verify: "false"', "{}", "clusters[0].cluster.insecure-skip-tls-verify: expected true or false, got a text: false"),
    ("https://a", ', certificate-authority: "a\\0"', "{}", "cluster 'c': certificate-authority: 'a\\x00': embedded null byte"),
    ("http://a", "", '{token: "hunter2ü"}', "user 'u': token: it has a character that is not in ASCII"),
    ("http://a", "", "{tokenFile: 7}", "users[0].user.tokenFile: expected a text, got a number"),
    ("http://a", "", "{exec: hunter2}", "users[0].user.exec: expected a mapping, got a text"),
    ("http://a", "", "{exec: {apiVersion: v1, command: a, args: [{hunter2: 7}]}}", "users[0].user.exec.args[0]: expected a text, got a mapping"),
    ("http://a", "", "{exec: {apiVersion: v1, command: a, env: [{name: hunter2}]}}", "Expected key value in user 'u'/user/exec/env/0"),
    ("http://a", "", "{auth-provider: {name: oidc, config: {client-secret: hunter2, refresh-token: a}}}", "Expected key client-id in user 'u'/user/auth-provider/config"),
    ("http://a", "", "{auth-provider: {name: oidc, config: {id-token: a.hunter2.b}}}", "auth-provider.config.id-token: is no JSON Web Token"),
    ("'ftp://a:hunter2@b'", "", "{}", "'ftp://b' is no server address"),
    ('"http://a b"', "", "{}", "'http://a b' is no server address"),
    ('"http://a/ü"', "", "{}", "'http://a/ü' is no server address"),
]  # fmt: skip


@pytest.mark.parametrize(("server", "more", "user", "message"), WRONG, ids=[case[3][:60] for case in WRONG])
def test_a_wrong_value_is_named_with_its_field(server: str, more: str, user: str, message: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(5_000_000))
    path = tmp_path / "config"
    path.write_text(
        f"clusters: [{{name: c, cluster: {{server: {server}{more}}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    with pytest.raises(AccessError) as caught:
        run(load_kubeconfig(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: 7", "clusters: expected a list, got a number: 7"),
        ("users: [null]", r"users\[0\]: expected a mapping, got nothing"),
        ("contexts: [{name: 7}]", r"contexts\[0\]\.name: expected a text, got a number: 7"),
        ("hunter2", "is no kubeconfig: expected a mapping, got a text$"),
        ("a: *hunter2", "line 1: is no YAML$"),
        ("[" * 1000, "line 1: nested more than 200 levels deep$"),
    ],
)
def test_a_wrong_form_is_named_with_the_file_of_several(text: str, message: str, tmp_path: Path) -> None:
    good, bad = kubeconfig(tmp_path, "{token: a}"), tmp_path / "bad"
    bad.write_text(text)
    with pytest.raises(AccessError, match=f"^{bad}: {message}"):
        run(load_kubeconfig(f"{good}:{bad}"))


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
def test_a_kubeconfig_is_a_regular_file(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    good, bad = kubeconfig(tmp_path, "{token: a}"), tmp_path / name
    for source in (f"{bad}", f"{good}:{bad}"):
        with pytest.raises(AccessError, match=f"^{bad}: is no regular file"):
            run(load_kubeconfig(source))


def test_a_context_may_have_no_user_but_not_a_missing_one(tmp_path: Path) -> None:
    text = "clusters: [{name: c, cluster: {server: 'https://a'}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
    (tmp_path / "config").write_text(text)
    assert run(load_kubeconfig(tmp_path / "config")).url == "https://a"
    (tmp_path / "config").write_text(text.replace("cluster: c}", "cluster: c, user: u}"))
    with pytest.raises(AccessError, match="context 'x': user: there is no user 'u'"):
        run(load_kubeconfig(tmp_path / "config"))


def test_a_token_file_that_becomes_a_pipe_or_gets_a_line_break_leaves_the_token_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("one")
    credentials = run(load_kubeconfig(kubeconfig(tmp_path, "{tokenFile: token}"))).credentials
    seen: list[str | None] = []

    async def main() -> None:
        seen.append(await credentials.header())
        (tmp_path / "token").write_text("two\nX-Remote-User: admin")
        credentials.rejected()
        seen.append(await credentials.header())
        (tmp_path / "token").write_text("")
        credentials.rejected()
        seen.append(await credentials.header())
        (tmp_path / "token").unlink()
        os.mkfifo(tmp_path / "token")
        credentials.rejected()
        seen.extend([await credentials.header(), await credentials.header()])

    run_virtual(main())
    assert seen == ["Bearer one"] * 5
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        f"the token cannot be read: {fault}; what was read before stays in use"
        for fault in ("it has a line break or another control character", "it is empty", "is no regular file")
    ]


def test_a_token_file_is_read_again_after_a_minute_and_when_the_server_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n")
    path = kubeconfig(tmp_path, "{tokenFile: token}")
    credentials = run(load_kubeconfig(path)).credentials
    seen: list[str | None] = []

    async def main() -> None:
        seen.append(await credentials.header())
        (tmp_path / "token").write_text("two")
        seen.append(await credentials.header())
        await asyncio.sleep(61)
        seen.append(await credentials.header())
        (tmp_path / "token").write_text("three")
        credentials.rejected()
        seen.append(await credentials.header())
        (tmp_path / "token").unlink()
        await asyncio.sleep(61)
        seen.append(await credentials.header())  # the last one known is better than none

    run_virtual(main())
    assert seen == ["Bearer one", "Bearer one", "Bearer two", "Bearer three", "Bearer three"]


def test_an_exec_plugin_runs_once_and_again_when_its_token_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, plugin(tmp_path, COUNTER))

    async def main() -> list[str | None]:
        credentials = (await load_kubeconfig(path)).credentials
        tokens = [await credentials.header(), await credentials.header()]
        credentials.rejected()
        return [*tokens, await credentials.header()]

    assert run(main()) == ["Bearer secret-1", "Bearer secret-1", "Bearer secret-2"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; print('hunter2'); print('hunter2', file=sys.stderr); sys.exit(3)", "exec: process returned 3"),
        ("print('hunter2')", "exec: the plugin printed no ExecCredential"),
        ('print(\'{"apiVersion": "v0", "kind": "x", "status": {"token": "hunter2"}}\')', "does not match"),
    ],
)
def test_what_a_failing_plugin_prints_is_not_shown(
    script: str, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kubeconfig(tmp_path, plugin(tmp_path, script))
    with pytest.raises(AccessError, match=message) as error:
        run(load_kubeconfig(path))
    assert "hunter2" not in str(error.value)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("while True: print('hunter2' * 1000)", "exec: the plugin printed more than 1048576 bytes"),
        ("import time; time.sleep(600)", "exec: the plugin did not end within 0.5 s"),
        ("import os, sys, time; os.close(1); time.sleep(600)", "exec: the plugin did not end within 0.5 s"),
        ("print('[' * 100_000)", "exec: the plugin printed no ExecCredential"),
        ("print([])", "exec: malformed response. missing key 'apiVersion'"),
    ],
)
def test_a_plugin_that_does_not_end_is_ended(
    script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin's output was once read as long as there was memory; a loud plugin, whose stderr nobody read, was waited for."""
    monkeypatch.setattr(credential_sources, "_PLUGIN_SECONDS", 0.5 if "600" in message + script else 60.0)
    pid = tmp_path / "pid"
    note = f"import os, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    path = kubeconfig(tmp_path, plugin(tmp_path, note + script))
    with pytest.raises(AccessError, match=message):
        run(load_kubeconfig(path))
    if pid.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_what_a_plugin_says_on_stderr_does_not_hold_it_up(tmp_path: Path) -> None:
    loud = "import sys; sys.stderr.write('x' * 1_000_000)\n"
    path = kubeconfig(tmp_path, plugin(tmp_path, loud + COUNTER))

    async def main() -> str | None:
        return await (await load_kubeconfig(path)).credentials.header()

    assert run(main()) == "Bearer secret-1"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what the loader does with aiohttp
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("endless", "oidc: the issuer's answer has more than 1048576 bytes"),
        ("silent", "oidc: the issuer has not answered within 0.5 s"),
        ("words", "oidc: the issuer's answer is no JSON"),
    ],
)
def test_the_answer_of_an_issuer_of_tokens_has_limits(
    answer: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_sources, "_ANSWER_SECONDS", 0.5 if answer == "silent" else 60.0)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while answer == "endless":
            await response.write(b" " * 65536)
        if answer == "silent":
            await asyncio.sleep(600)
        await response.write(b"no token")
        return response

    async def main() -> None:
        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        user = f"{{auth-provider: {{name: oidc, config: {{client-id: a, client-secret: b, refresh-token: c, idp-issuer-url: '{issuer}'}}}}}}"
        try:
            await load_kubeconfig(kubeconfig(tmp_path, user))
        finally:
            await runner.cleanup()

    with pytest.raises(AccessError, match=message):
        run(main())


def test_nothing_to_connect_to_is_said_in_upstreams_words() -> None:
    with pytest.raises(
        AccessError,
        match="no configuration has been provided; this process is not in a pod of a cluster: name a kubeconfig with --kubeconfig",
    ):
        run(load_access(environ={}))


def test_inside_a_cluster_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cryptography = pytest.importorskip("cryptography")
    assert cryptography
    from kubesched.base.times import RealClock
    from kubesched.cluster.http.access_files import make_certificates

    files = make_certificates(tmp_path, RealClock())
    (tmp_path / "ca.crt").write_bytes(Path(files.ca).read_bytes())
    (tmp_path / "token").write_text("robot")
    (tmp_path / "namespace").write_text("scheduling")
    monkeypatch.setattr(access, "SERVICE_ACCOUNT", tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = run(load_access(environ=environ))
    assert (found.url, found.namespace) == ("https://[fd00::1]:443", "scheduling")
    assert found.ssl is not None
    assert run(found.credentials.header()) == "Bearer robot"
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(AccessError, match=r"open .*ca\.crt: no such file or directory"):
        run(load_access(environ=environ))
