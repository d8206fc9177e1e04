"""Runner of upstream's ``e2e.test`` against ``kubesched up``, or a real control plane: ``make test-e2e``.

The program is the file in ``E2E_TEST``, or ``e2e.test`` in ``KUBEBUILDER_ASSETS``; without it nothing is run. The list
``specs.txt`` says which specs are run and what is expected of them. The exit code is 1 when a result is another.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree as ET

HERE: Final = Path(__file__).parent
_LISTED: Final = re.compile(r"\s+\S+:\d+: (.+)")
_WORDS: Final = ("pass", "fail", "skip")
#: Seconds for the listing of specs, and for the start and the end of a cluster.
_PATIENCE: Final = 120.0
#: Bytes of one argument of a program, below the limit of Linux.
_MOST_FOCUS: Final = 120_000


class Rule(NamedTuple):
    """Expectation about the specs whose names match, and its reason."""

    word: str
    pattern: re.Pattern[str]
    reason: str


def read_rules(text: str) -> list[Rule]:
    """Return the rules of a list. Raises ValueError, naming the line, for a line that is no rule."""
    rules: list[Rule] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  ") and rules:
            for index in range(len(rules) - 1, -1, -1):
                if rules[index].reason or rules[index].word != rules[-1].word:
                    break
                rules[index] = rules[index]._replace(reason=line.strip())
        elif line.strip() and not line.startswith("#"):
            word, _, pattern = line.partition(" ")
            if word not in _WORDS or not pattern:
                raise ValueError(f"line {number}: expected '{'|'.join(_WORDS)} REGEX', got {line!r}")
            if pattern.startswith('"'):
                name = re.escape(pattern.strip('"'))
                pattern = rf"^{name}( \[|$)"
            rules.append(Rule(word, re.compile(pattern), ""))
    return rules


def expected(rules: Sequence[Rule], spec: str) -> Rule | None:
    """Return the first rule that a spec's name matches."""
    return next((rule for rule in rules if rule.pattern.search(spec)), None)


def find_program(environment: Mapping[str, str]) -> Path | None:
    """Return the test program, or None if there is none."""
    named, folder = environment.get("E2E_TEST"), environment.get("KUBEBUILDER_ASSETS")
    for path in ([Path(named)] if named else []) + ([Path(folder) / "e2e.test"] if folder else []):
        if path.is_file():
            return path.resolve()
    return None


def list_specs(program: Path) -> tuple[list[str], bool]:
    """Return the names of all specs of the program, and True if it is made with version 1 of ginkgo, as before 1.25."""
    limits: dict[str, Any] = {"capture_output": True, "text": True, "timeout": _PATIENCE}
    done = subprocess.run([program, "--list-tests"], check=False, **limits)
    if done.returncode == 0:
        found = (_LISTED.fullmatch(line) for line in done.stdout.splitlines())
        return [match[1].strip() for match in found if match is not None], False
    with tempfile.TemporaryDirectory() as place:
        options = ("--ginkgo.dryRun", "--provider=skeleton", f"--report-dir={place}")
        subprocess.run([program, *options], check=True, **limits)
        return list(read_results(Path(place))), True


@contextmanager
def kubesched(folder: Path, *arguments: str, speaks: bool = True) -> Iterator[None]:
    """Run a command of kubesched; one that ``speaks`` has started when it has written a line."""
    command = [sys.executable, "-m", "kubesched.cli", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment)
    try:
        assert process.stdout is not None
        if speaks and not process.stdout.readline().strip():
            raise RuntimeError(f"kubesched {arguments[0]} did not start; exit code {process.wait(_PATIENCE)}")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def cluster(folder: Path, nodes: int, kubeconfig: str = "") -> Iterator[Path]:
    """Run ``kubesched up``, or a scheduler and hollow nodes on the API server of a kubeconfig. The value is a kubeconfig."""
    count = ("--nodes", str(nodes))
    if kubeconfig:
        hollow = ("kubelets", *count, "--kubeconfig", kubeconfig, "--name", "e2e", "--delete-nodes")
        scheduler = ("run", "--kubeconfig", kubeconfig, "--secure-port", "0")
        with kubesched(folder, *hollow), kubesched(folder, *scheduler, speaks=False):
            yield Path(kubeconfig)
        return
    made = folder / "kubeconfig"
    with kubesched(folder, "up", "--quiet", *count, "--port", "0", "--tls", "--kubeconfig-out", str(made)):
        yield made


def read_results(folder: Path) -> dict[str, str]:
    """Return passed, failed or skipped by the name of each spec, from the JUnit reports of a folder."""
    results: dict[str, str] = {}
    for path in sorted(folder.glob("junit*.xml")):
        for case in ET.parse(path).iter("testcase"):
            name = case.get("name", "").removeprefix("[It] ")
            bad = case.find("failure") is not None or case.find("error") is not None
            results[name] = "failed" if bad else "skipped" if case.find("skipped") is not None else "passed"
    return results


def run_specs(
    program: Path,
    specs: Sequence[str],
    folder: Path,
    nodes: int,
    hours: float,
    kubeconfig: str = "",
    *,
    is_old: bool = False,
) -> dict[str, str]:
    """Run specs against a new cluster, or that of a kubeconfig; one program for as many as an argument holds.

    Returns results by name. An old program waits for secrets of ServiceAccounts, which there are none since 1.24.
    """
    results: dict[str, str] = {}
    flags = ["--ginkgo.no-color", f"--ginkgo.timeout={hours:g}h"]
    if is_old:
        flags = ["--ginkgo.noColor", f"--test.timeout={hours:g}h", "--e2e-verify-service-account=false"]
    for part in _parts(specs):
        with tempfile.TemporaryDirectory(dir=folder) as place, cluster(Path(place), nodes, kubeconfig) as access:
            command = [str(program), f"--kubeconfig={access}", "--provider=skeleton", *flags]
            command += [f"--report-dir={place}", f"--ginkgo.focus={part}"]
            with (folder / "e2e.log").open("a", encoding="utf-8") as log:
                code = subprocess.run(
                    command, stdout=log, stderr=log, timeout=hours * 3600 + 60, check=False
                ).returncode
            found = read_results(Path(place))
            if not found:
                raise RuntimeError(f"{program} ended with {code} and wrote no report; see {folder / 'e2e.log'}")
            results |= found
    return results


def _parts(specs: Sequence[str]) -> Iterator[str]:
    """Yield regular expressions that match the specs."""
    part = ""
    for spec in specs:
        one = re.escape(spec)
        if part and len(part) + len(one) > _MOST_FOCUS:
            yield part
            part = ""
        part = f"{part}|{one}" if part else one
    if part:
        yield part


def compare(rules: Sequence[Rule], specs: Sequence[str], results: Mapping[str, str]) -> tuple[list[str], bool]:
    """Return a line for each spec, and True if every result is the expected one."""
    lines, good = [], True
    for spec in specs:
        rule = expected(rules, spec)
        if rule is None or rule.word == "skip":
            lines.append(
                f"not run  {spec}  ({rule.reason if rule is not None else 'no line of specs.txt is about it'})"
            )
            continue
        names = (name for name in results if name == spec or name.startswith(f"{spec} ["))  # with its labels
        result = results.get(next(names, ""), "missing")
        is_good = result in ("passed" if rule.word == "pass" else "failed", "skipped")  # a spec may skip itself
        good = good and is_good
        lines.append(f"{result:8} {spec}{'' if is_good else f'  (expected: {rule.word})'}")
    return lines, good


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5, help="hollow nodes of the cluster")
    parser.add_argument("--hours", type=float, default=4.0, help="longest time of a run")
    parser.add_argument("--focus", default="", help="only specs whose names this regular expression is found in")
    parser.add_argument("--specs", default=str(HERE / "specs.txt"), help="the list of expectations")
    parser.add_argument("--report", default="e2e-report", help="folder for results and the log")
    parser.add_argument(
        "--kubeconfig", default="", help="a cluster without scheduler and nodes to use in place of kubesched up"
    )
    options = parser.parse_args(arguments)
    program = find_program(environment)
    if program is None:
        sys.stdout.write("skipped: no e2e.test; give its path in E2E_TEST, or its folder in KUBEBUILDER_ASSETS\n")
        return 0
    rules = read_rules(Path(options.specs).read_text(encoding="utf-8"))
    listed, is_old = list_specs(program)
    specs = [spec for spec in listed if re.search(options.focus, spec)]
    chosen = [spec for spec in specs if (rule := expected(rules, spec)) is not None and rule.word != "skip"]
    if not chosen:
        sys.stdout.write(
            f"no spec of {len(listed)} is run: none is found by --focus {options.focus!r} and expected to run\n"
        )
        return 1
    folder = Path(options.report).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig = str(Path(options.kubeconfig).resolve()) if options.kubeconfig else ""
    results = run_specs(program, chosen, folder, options.nodes, options.hours, kubeconfig, is_old=is_old)
    lines, good = compare(rules, specs, results)
    (folder / "results.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    counts = {word: sum(line.startswith(word) for line in lines) for word in ("passed", "failed", "skipped", "missing")}
    total = ", ".join(f"{count} {word}" for word, count in counts.items())
    told = [*(line for line in lines if "(expected: " in line), f"{total} of {len(chosen)} specs; {folder}/results.txt"]
    sys.stdout.write("\n".join(told) + "\n")
    if counts["skipped"] == len(chosen):
        sys.stdout.write("every spec skipped itself: this shows nothing\n")
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
