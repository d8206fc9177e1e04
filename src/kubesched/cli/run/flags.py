"""Table of the flags of ``kubesched run``: kube-scheduler's, in its groups and with its defaults, and some of its own.

Source: rules/configuration §7.
"""

from __future__ import annotations

from typing import Any, Final

from kubesched.scheduler.config.durations import Duration
from kubesched.scheduler.config.older import older

from .flagset import Flag, FlagSet
from .values import (
    BOOL,
    DURATION,
    FLOAT32,
    INT,
    INT32,
    INT32_LIST,
    IP,
    LABEL_MAP,
    QUANTITY,
    STRING,
    STRINGS,
    UINT,
    ValueType,
)

__all__ = ["FLAG_SET"]


def _one_more(text: str, before: tuple[str, ...]) -> tuple[str, ...]:
    return (*before, text)


def _read_sni(text: str, before: tuple[str, ...]) -> tuple[str, ...]:
    files = text.partition(":")[0].split(",")
    if len(files) != 2 or not all(files):
        raise ValueError("expected comma separated certificate and key file paths")
    return (*before, text)


def _seconds(seconds: float) -> Duration:
    return Duration.of_seconds(seconds)


def _bracketed(values: tuple[str, ...]) -> str:
    return f"[{';'.join(values)}]"


_SNI: Final = ValueType("namedCertKey", _read_sni, _bracketed, repeats=True)
_GATES: Final = ValueType("colonSeparatedMultimapStringString", _one_more, ",".join, repeats=True)
_VMODULE: Final = ValueType("pattern=N,...", _one_more, ",".join, repeats=True)
_VERSION: Final = ValueType("version", lambda text, _: text, str, bare="true")


def _misc(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Misc", name, kind, default, about)


_MISC: Final = (
    _misc(
        "config",
        STRING,
        "",
        "The KubeSchedulerConfiguration file. Older versions and the Policy format are converted. With it the deprecated flags "
        "are ignored, except --pod-max-in-unschedulable-pods-duration; leader-election flags that are given win over the file.",
    ),
    _misc("master", STRING, "", "The address of the API server. Wins over any address in a kubeconfig."),
    _misc("write-config-to", STRING, "", "Write the configuration in effect to this file, and exit."),
    _misc("plugin-module", STRINGS, (), "A Python module or file with plugins. Repeatable. (kubesched only)"),
    _misc(
        "enable-plugin",
        STRINGS,
        (),
        "Enable a plugin at all the extension points it has, in every profile. Repeatable. (kubesched only)",
    ),
    _misc(
        "decisions",
        STRING,
        "",
        "Write every decision and its reasons to this file, for kubesched decisions. Compressed, at most 512 MiB. (kubesched only)",
    ),
    _misc(
        "annotate-why-pending",
        BOOL,
        False,
        "Write an annotation on pending pods, kubesched.io/why-pending: why, and what would help. Needs the permission "
        "to patch pods. (kubesched only)",
    ),
    _misc(
        "event-why-pending",
        BOOL,
        False,
        "Write an event of pending pods, WhyPending: why, and what would help. (kubesched only)",
    ),
    _misc(
        "annotate-simulator-results",
        BOOL,
        False,
        "Write the verdicts and scores of each attempt as annotations of its pod, with the keys of "
        "kube-scheduler-simulator. For debugging: each attempt evaluates all nodes once more. Needs the permission to "
        "patch pods. (kubesched only)",
    ),
    Flag(
        "Misc",
        "ui",
        STRING,
        "",
        "Serve the dashboard under /ui/ of the secure port, and on this port of loopback, PORT or ADDRESS:PORT, by a link that "
        "the log has. 0: a free port. (kubesched only)",
        bare="10260",
    ),
    _misc("decisions-kept", INT, 0, "Keep the newest N decisions in memory. (kubesched only)"),
    _misc("seed", INT, 0, "The seed of the random choices; 0 takes one from the system. (kubesched only)"),
)


def _serving(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Secure serving", name, kind, default, about)


_SERVING: Final = (
    _serving("bind-address", IP, "0.0.0.0", "The address to listen on."),
    _serving("secure-port", INT, 10259, "The port for HTTPS. 0: nothing is served."),
    _serving("cert-dir", STRING, "", "The directory of the certificate, when no certificate files are given."),
    _serving("tls-cert-file", STRING, "", "The file with the certificate, followed by its CA."),
    _serving("tls-private-key-file", STRING, "", "The file of the key that matches --tls-cert-file."),
    _serving(
        "tls-sni-cert-key",
        _SNI,
        (),
        "A certificate file, a key file, and optionally the domain patterns they are for: cert,key[:pattern,...]. Repeatable.",
    ),
    _serving(
        "tls-min-version",
        STRING,
        "",
        "The lowest TLS version: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.",
    ),
    _serving("tls-cipher-suites", STRINGS, (), "The cipher suites to offer. By default, those of the TLS library."),
    _serving("tls-curve-preferences", INT32_LIST, (), "The key exchange groups by number, in order of preference."),
    _serving("disable-http2-serving", BOOL, False, "Offer HTTP/1.1 only."),
    _serving(
        "http2-max-streams-per-connection", INT, 0, "The number of streams in an HTTP/2 connection. 0: the default."
    ),
    _serving("permit-address-sharing", BOOL, False, "Set SO_REUSEADDR on the listening socket."),
    _serving("permit-port-sharing", BOOL, False, "Set SO_REUSEPORT on the listening socket."),
)


def _authn(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Authentication", name, kind, default, about)


_AUTHENTICATION: Final = (
    _authn("authentication-kubeconfig", STRING, "", "The kubeconfig of the API server that reviews tokens."),
    _authn("authentication-skip-lookup", BOOL, False, "Do not read missing authentication settings from the cluster."),
    _authn(
        "authentication-tolerate-lookup-failure",
        BOOL,
        True,
        "Start although the authentication settings cannot be read from the cluster.",
    ),
    _authn("authentication-token-webhook-cache-ttl", DURATION, _seconds(10), "How long token reviews are kept."),
    _authn(
        "client-ca-file",
        STRING,
        "",
        "The CAs of client certificates. The common name of a certificate is the user name.",
    ),
    _authn(
        "requestheader-client-ca-file", STRING, "", "The CAs of front proxies, whose user headers are then trusted."
    ),
    _authn(
        "requestheader-allowed-names",
        STRINGS,
        (),
        "Common names of front proxies. If empty, any name is accepted on a certificate that the CA signed.",
    ),
    _authn("requestheader-username-headers", STRINGS, ("x-remote-user",), "Headers that hold the user name."),
    _authn("requestheader-group-headers", STRINGS, ("x-remote-group",), "Headers that hold groups."),
    _authn("requestheader-uid-headers", STRINGS, (), "Headers that hold the user's UID."),
    _authn(
        "requestheader-extra-headers-prefix",
        STRINGS,
        ("x-remote-extra-",),
        "Prefixes of headers that hold further attributes of the user.",
    ),
)


def _authz(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Authorization", name, kind, default, about)


_AUTHORIZATION: Final = (
    _authz("authorization-kubeconfig", STRING, "", "The kubeconfig of the API server that reviews access."),
    _authz(
        "authorization-always-allow-paths",
        STRINGS,
        ("/healthz", "/readyz", "/livez"),
        "Paths that need no authorization. A trailing * makes a prefix.",
    ),
    _authz("authorization-webhook-cache-authorized-ttl", DURATION, _seconds(10), "How long allowed requests are kept."),
    _authz(
        "authorization-webhook-cache-unauthorized-ttl", DURATION, _seconds(10), "How long denied requests are kept."
    ),
)


def _deprecated(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Deprecated", name, kind, default, about, deprecated=True)


_DEPRECATED: Final = (
    _deprecated("kubeconfig", STRING, "", "The kubeconfig of the API server. Ignored with --config."),
    _deprecated(
        "kube-api-qps", FLOAT32, 50.0, "The most requests to the API server per second. Ignored with --config."
    ),
    _deprecated("kube-api-burst", INT32, 100, "The most requests to the API server at once. Ignored with --config."),
    _deprecated(
        "kube-api-content-type",
        STRING,
        "application/vnd.kubernetes.protobuf",
        "The content type of requests. kubesched always sends and reads JSON.",
    ),
    _deprecated("profiling", BOOL, True, "Serve /debug/pprof/. Ignored with --config."),
    _deprecated("contention-profiling", BOOL, True, "Profile contention, when profiling is on. Ignored with --config."),
    _deprecated(
        "pod-max-in-unschedulable-pods-duration",
        DURATION,
        _seconds(300),
        "How long an unschedulable pod waits for an event before it is tried again without one.",
    ),
)


def _election(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Leader election", f"leader-elect{name}", kind, default, about)


_ELECTION: Final = (
    _election("", BOOL, True, "Schedule only while holding the lease."),
    _election(
        "-lease-duration",
        DURATION,
        _seconds(15),
        "How long other candidates wait after the last renewal that they saw.",
    ),
    _election("-renew-deadline", DURATION, _seconds(10), "How long the leader tries to renew before it gives up."),
    _election("-retry-period", DURATION, _seconds(2), "How long to wait between attempts."),
    _election("-resource-lock", STRING, "leases", "The kind of the lock. Only leases is supported."),
    _election("-resource-name", STRING, "kube-scheduler", "The name of the lease."),
    _election("-resource-namespace", STRING, "kube-system", "The namespace of the lease."),
)

_FEATURES: Final = (
    Flag(
        "Feature gate", "feature-gates", _GATES, (), "Feature gates: [component:]Key=bool, comma separated. Repeatable."
    ),
    Flag(
        "Feature gate",
        "emulated-version",
        STRINGS,
        (),
        "The version to emulate, as kube=1.36. Allowed are 1.33 to 1.36.",
    ),
    Flag(
        "Feature gate",
        "min-compatibility-version",
        STRINGS,
        (),
        "The lowest version of other components, as kube=1.35. It must not be above the emulated version.",
    ),
)


def _metrics(name: str, kind: ValueType, default: Any, about: str) -> Flag:
    return Flag("Metrics", name, kind, default, about)


_METRICS: Final = (
    _metrics(
        "allow-metric-labels",
        LABEL_MAP,
        {},
        "The values that a label of a metric may have: metric,label='v1,v2'. Other values become \"unexpected\".",
    ),
    _metrics(
        "allow-metric-labels-manifest",
        STRING,
        "",
        "A file with such values, under allowListMapping. --allow-metric-labels wins over it.",
    ),
    _metrics("disabled-metrics", STRINGS, (), "Metrics that are not shown."),
    _metrics("show-hidden-metrics-for-version", STRING, "", "Show metrics hidden since the previous minor version."),
)


def _logs(name: str, kind: ValueType, default: Any, about: str, short: str = "") -> Flag:
    return Flag("Logs", name, kind, default, about, short)


_LOGS: Final = (
    _logs("logging-format", STRING, "text", "text or json."),
    _logs("v", UINT, 0, "The level of detail of the log.", "v"),
    _logs("vmodule", _VMODULE, (), "Levels of detail by module, as pattern=N,pattern=N. Text format only."),
    _logs("log-flush-frequency", DURATION, _seconds(5), "The longest time between flushes of the log."),
    _logs("log-json-info-buffer-size", QUANTITY, "0", "Buffer of info lines in JSON. Needs LoggingAlphaOptions."),
    _logs("log-text-info-buffer-size", QUANTITY, "0", "Buffer of info lines in text. Needs LoggingAlphaOptions."),
    _logs(
        "log-json-split-stream",
        BOOL,
        False,
        "Write errors to stderr and all other lines to stdout, in JSON. Needs LoggingAlphaOptions.",
    ),
    _logs(
        "log-text-split-stream",
        BOOL,
        False,
        "Write errors to stderr and all other lines to stdout, in text. Needs LoggingAlphaOptions.",
    ),
)

_GLOBAL: Final = (
    Flag("Global", "help", BOOL, False, "This page.", "h"),
    Flag(
        "Global",
        "version",
        _VERSION,
        "false",
        "Print the version and exit. raw prints all its fields; vX.Y.Z sets the version to report.",
    ),
)

_TYPES: Final[dict[str, ValueType]] = {"string": STRING, "int": INT, "bool": BOOL}
#: Flags of releases 1.18 to 1.22. They are read and converted, with a warning.
_RETIRED: Final = tuple(
    Flag("Retired", flag.name, _TYPES[flag.type], flag.default, flag.message, deprecated=True) for flag in older().flags
)

#: The flags in the order of the help page.
FLAG_SET: Final = FlagSet(
    "kubesched run",
    "The Kubernetes scheduler assigns pods to nodes. It determines which nodes are valid placements for each pod in the "
    "scheduling queue, ranks them, and binds the pod to a suitable one. kubesched run takes kube-scheduler's flags and files.",
    (
        *_MISC,
        *_SERVING,
        *_AUTHENTICATION,
        *_AUTHORIZATION,
        *_DEPRECATED,
        *_ELECTION,
        *_FEATURES,
        *_METRICS,
        *_LOGS,
        *_GLOBAL,
        *_RETIRED,
    ),
)
