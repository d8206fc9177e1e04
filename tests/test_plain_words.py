"""Code and documentation use the terms of Kubernetes and plain engineering English instead of figures of speech."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: What is not written, by the terms to use instead.
PATTERNS = {
    "notified, receives, reported, distinguish": r"told|tells?|telling|hears?|heard",
    "evaluated": r"asks? about|asked about|look(?:s|ed|ing)? at",
    "again": r"anew",
    "honour": r"heed(?:s|ed|ing)?",
    "fix": r"mend(?:s|ed|ing)?",
    "release": r"lets? go|letting go|lets? \w+ go",
    "package, resources, capacity": r"rooms?",
    "project": r"houses?",
    "current": r"at hand",
    "alongside": r"beside",
    "rejected": r"turn(?:s|ed|ing)? down",
    "skipped": r"pass(?:es|ed|ing)? over (?:in silence|by)|(?:is|are|was|were) passed over",
    "matches": r"means? (?:a|the|any|every|no) pods?",
    "adopt, ingest": r"(?:takes?|taken|took|taking) (?:over|in)(?! \d)",
    "represents": r"stands? for|stood for|standing for",
    "yield interval": r"breath|breathes?",
    "preferred": r"wish(?:es|ed)?",
    "no ..., another ..., every ...": r"nobody|somebody|everybody|anybody|whoever",
    "random": r"dice",
    "unresponsive": r"falls? silent|silent nodes?",
    "without limit": r"for ever",
    "changes, events": r"news",
    "special rules": r"minds? of (?:its|their) own",
}
FORBIDDEN = {
    better: re.compile(rf"(?<![a-z])(?:{pattern})(?![a-z])", re.IGNORECASE) for better, pattern in PATTERNS.items()
}

#: Terms of the field that look the same: file and word.
ALLOWED = {
    ("CONTRIBUTING.md", "room"),  # clean room
    # Upstream's words for what preemption does: it makes room.
    ("docs/operate.md", "takes over"),  # a standby becomes the leader
    ("docs/operate.md", "taking over"),
    ("docs/preemption.md", "room"),
    ("src/kubesched/scheduler/framework/preemption.py", "room"),
    ("src/kubesched/scheduler/plugins/default_preemption.py", "room"),
}

#: Recorded output, and upstream's names of fields.
SKIPPED = ("docs/kubectl-session.md", "src/kubesched/cluster/schema/schemas.txt")


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*")]
    for folder in ("src", "examples"):
        found += [path for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".md", ".yaml"}]
    return sorted(path for path in found if path.is_file() and path.relative_to(ROOT).as_posix() not in SKIPPED)


def violations(text: str, name: str) -> list[str]:
    """The places that use a word of the list, with the terms to use instead."""
    return [
        f"{name}:{number}: {match[0]!r}; use: {better}"
        for number, line in enumerate(text.splitlines(), 1)
        for better, pattern in FORBIDDEN.items()
        for match in pattern.finditer(line)
        if (name, match[0].lower()) not in ALLOWED
    ]


def test_code_and_documentation_use_plain_words() -> None:
    found = [
        item
        for path in pages()
        for item in violations(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The client is told 410 and lists anew.", 2),
        ("BREATH = 64", 1),
        ("_BREATH, breathe(), room_of", 3),
        ("Clients receive 410 and list again.", 0),
        ("headroom, lookalike, intelligent, warehouse", 0),
    ],
)
def test_words_are_found_in_text_and_in_names(text: str, count: int) -> None:
    assert len(violations(text, "some.py")) == count


def test_an_allowed_word_is_allowed_in_its_file_only() -> None:
    assert violations("clean room", "CONTRIBUTING.md") == []
    assert len(violations("clean room", "README.md")) == 1
