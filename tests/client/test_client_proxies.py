"""Proxy that the environment names for an address."""

from __future__ import annotations

import pytest

from kubesched.client.proxies import environment_proxy

BOTH = {"HTTP_PROXY": "http://plain:3128", "HTTPS_PROXY": "http://secure:3128"}

CASES = [
    ("nothing set", "https://api.example.com", {}, ""),
    ("by the scheme", "https://api.example.com", BOTH, "http://secure:3128"),
    ("the other scheme", "http://api.example.com", BOTH, "http://plain:3128"),
    ("lower case", "https://api.example.com", {"https_proxy": "http://p"}, "http://p"),
    ("a bare host", "https://api.example.com", {"HTTPS_PROXY": "p:1"}, "http://p:1"),
    ("this machine by name", "https://localhost:6443", BOTH, ""),
    ("this machine by address", "https://127.0.0.1:6443", BOTH, ""),
    ("this machine by IPv6 address", "https://[::1]:6443", BOTH, ""),
    ("everything exempt", "https://api.example.com", {**BOTH, "NO_PROXY": "*"}, ""),
    ("the name", "https://api.example.com", {**BOTH, "NO_PROXY": "x, Api.Example.com"}, ""),
    ("its domain", "https://api.example.com", {**BOTH, "no_proxy": "example.com"}, ""),
    ("below a domain", "https://api.example.com", {**BOTH, "NO_PROXY": ".example.com"}, ""),
    ("below a domain, with a star", "https://api.example.com", {**BOTH, "NO_PROXY": "*.example.com"}, ""),
    ("not the domain itself", "https://example.com", {**BOTH, "NO_PROXY": ".example.com"}, "http://secure:3128"),
    (
        "another name that ends alike",
        "https://my-example.com",
        {**BOTH, "NO_PROXY": "example.com"},
        "http://secure:3128",
    ),
    ("an address", "https://10.0.0.1", {**BOTH, "NO_PROXY": "10.0.0.1"}, ""),
    ("a range", "https://10.0.0.1", {**BOTH, "NO_PROXY": "10.0.0.0/8"}, ""),
    ("another range", "https://10.0.0.1", {**BOTH, "NO_PROXY": "192.168.0.0/16,nonsense/x"}, "http://secure:3128"),
    ("a range of the other family", "https://10.0.0.1", {**BOTH, "NO_PROXY": "fd00::/8"}, "http://secure:3128"),
    ("an IPv6 address", "https://[fd00::1]:6443", {**BOTH, "NO_PROXY": "fd00::1"}, ""),
    ("the port", "https://api.example.com:6443", {**BOTH, "NO_PROXY": "api.example.com:6443"}, ""),
    ("another port", "https://api.example.com", {**BOTH, "NO_PROXY": "api.example.com:6443"}, "http://secure:3128"),
]


@pytest.mark.parametrize(("url", "environ", "proxy"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_proxy_of_an_address(url: str, environ: dict[str, str], proxy: str) -> None:
    assert environment_proxy(url, environ) == proxy
