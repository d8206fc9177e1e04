"""The release check: is what would be published complete, reproducible and described? (``make release-check``)

It builds the wheel and the source distribution twice and compares bytes, compares their files with those of the repository,
checks the metadata, and installs the wheel with the extra ``run`` into a fresh environment for the version it says and for
the list of its parts (SBOM). Results are left in ``dist``. The first step that fails ends it with exit code 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parents[2]
BINARIES: Final = Path(sys.executable).parent
#: Folder of the repository to its place in the wheel; nothing else is installed.
INSTALLED: Final = {
    "src/kubesched": "kubesched",
    "examples": "kubesched/_data/examples",
    "bench": "kubesched/_data/bench",
}
METADATA: Final = frozenset({"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"})


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Output of a command; the check ends with its messages when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def date() -> str:
    """Seconds since 1970 of the last commit: the date of all that is made from it."""
    return run("git", "log", "-1", "--format=%ct").strip()


def build(folder: Path, target: str, source: Path = ROOT) -> Path:
    """Build ``wheel`` or ``sdist`` from a source tree, dated by the last commit."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source, SOURCE_DATE_EPOCH=date())
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def tracked(folder: str = "") -> set[str]:
    """Files of the repository below a folder, by their paths from there; new ones too, but none that git ignores."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = run(*listing, cwd=ROOT / folder).split("\0")
    return {name for name in names if name}


def expected_in_wheel(version: str) -> set[str]:
    files = {f"{there}/{name}" for here, there in INSTALLED.items() for name in tracked(here)}
    return files | {f"kubesched-{version}.dist-info/{name}" for name in METADATA}


def differences(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Files that are too many (+) and that are missing (-)."""
    there, wanted = set(found), set(expected)
    return sorted([f"+ {name}" for name in there - wanted] + [f"- {name}" for name in wanted - there])


def wheel_files(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def sdist_files(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def other_versions(version: str) -> list[str]:
    """Places in ``deploy`` that name another version of the image or the chart."""
    wrong = []
    for path in sorted(path for path in (ROOT / "deploy").rglob("*") if path.suffix != ".pyc"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            named = re.findall(
                r"(?:kubesched(?:-mine)?:|newTag: |^version: |^appVersion: )(\d[\w.]*)", text, re.MULTILINE
            )
            wrong += [f"{path.relative_to(ROOT)}: {name}" for name in named if name != version]
    return wrong


def same_bytes(first: Path, second: Path) -> None:
    if first.read_bytes() != second.read_bytes():
        raise SystemExit(f"{first.name}: two builds differ")


def nothing(problem: str, found: list[str]) -> None:
    if found:
        raise SystemExit("\n  ".join([f"{problem}:", *found]))


def check_built(scratch: Path) -> tuple[Path, Path]:
    """Build both twice: from the checkout, and again, the wheel from the unpacked source distribution."""
    wheel, sdist = build(scratch / "first", "wheel"), build(scratch / "first", "sdist")
    same_bytes(sdist, build(scratch / "second", "sdist"))
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    (source,) = (scratch / "unpacked").iterdir()
    same_bytes(wheel, build(scratch / "second", "wheel", source))
    version = version_of(wheel)
    nothing("files of the wheel", differences(wheel_files(wheel), expected_in_wheel(version)))
    nothing("files of the source distribution", differences(sdist_files(sdist), tracked() | {"PKG-INFO"}))
    nothing(f"versions in deploy other than {version}", other_versions(version))
    run(BINARIES / "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def check_installed(wheel: Path, scratch: Path) -> Path:
    """Install the wheel, compare versions, and write the list of all that is installed with it."""
    place = scratch / "venv"
    python = place / "bin/python"
    run(BINARIES / "uv", "venv", "--quiet", "--python", sys.executable, place)
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(BINARIES / "uv", "pip", "install", "--quiet", "--python", python, *constraints, f"{wheel}[run]")
    version = version_of(wheel)
    said = json.loads(run(place / "bin/kubesched", "version", "-o", "json", cwd=scratch))["kubesched"]
    nothing(f"the wheel's version is {version}, and the command says", [said] if said != version else [])
    (origin,) = place.rglob(f"kubesched-{version}.dist-info/direct_url.json")
    origin.unlink()  # the address of a temporary file, which the list would show
    listed = wheel.parent / f"kubesched-{version}.cdx.json"
    options = ("--output-reproducible", "--output-file", listed)
    run(BINARIES / "cyclonedx-py", "environment", *options, python, SOURCE_DATE_EPOCH=date())
    parts = {canonicalize_name(part["name"]) for part in json.loads(listed.read_text(encoding="utf-8"))["components"]}
    installed = json.loads(run(BINARIES / "uv", "pip", "list", "--format", "json", "--python", python))
    nothing(
        "packages that are installed and not listed",
        sorted({canonicalize_name(each["name"]) for each in installed} - parts),
    )
    return listed


def main() -> int:
    nothing("commit these first; a release is made of commits", run("git", "status", "--porcelain").splitlines())
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = check_built(Path(folder))
        listed = check_installed(wheel, Path(folder))
        (ROOT / "dist").mkdir(exist_ok=True)
        for made in (wheel, sdist, listed):
            shutil.copy(made, ROOT / "dist")
            print(f"dist/{made.name}  {made.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
