"""Results file of a sweep, one line of JSON for each run, so that an interrupted sweep can be continued.

The first line is a header. Every result is appended when its run ends; if a run has several lines, the last line
counts. An incomplete last line, left when the process was killed, is dropped. Caller: :mod:`.running`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from .functions import Outcome
from .plan import Run, Scalar, SweepError

__all__ = ["Recorded", "ResultsFile", "read_results"]

_API_VERSION: Final = "kubesched.io/v1alpha1"
_KIND: Final = "SweepResults"


class _Header(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    #: Name of the function of the runs, for readers of the file.
    function: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Line of the file."""

    run: dict[str, Scalar]
    #: Digest of the run's inputs, see :mod:`.inputs`.
    digest: str
    figures: dict[str, Scalar] = {}
    error: str | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.figures, self.error, self.seconds)


class ResultsFile:
    """Results file that one sweep writes to. Other sweeps are locked out meanwhile."""

    def __init__(self, path: str | Path, function: str) -> None:
        """Open or create the file, lock it, and read its results.

        Raises:
            SweepError: when the file holds something else, or another sweep writes to it.
            OSError: when it cannot be opened.
        """
        self.path = Path(path)
        #: Results in the file, by the key of the run.
        self.known: dict[str, Recorded] = {}
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SweepError(
                    f"{self.path}: another sweep is writing to it; wait for it, or give another file"
                ) from None
            content = self.path.read_bytes()
            lines = read_results(self.path, content)
            self.known = {Run(line.run, {}).key: line for line in lines}
            whole = content.rfind(b"\n") + 1
            os.ftruncate(self._file, whole)
            os.lseek(self._file, 0, os.SEEK_END)
            if not whole:
                self._write(_Header(_API_VERSION, _KIND, function))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, run: Run, digest: str, outcome: Outcome) -> None:
        """Append the result of a run.

        Raises:
            OSError: when it cannot be written.
        """
        line = Recorded(
            run=run.names, digest=digest, figures=outcome.figures, error=outcome.error, seconds=outcome.seconds
        )
        self._write(line)

    def _write(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        while data:
            data = data[os.write(self._file, data) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)


def read_results(path: str | Path, content: bytes | None = None) -> list[Recorded]:
    """Return all results of a file, in the order in which the runs ended.

    Raises:
        SweepError: when it is no results file, naming the line that cannot be used.
        OSError: when it cannot be read.
    """
    if content is None:
        content = Path(path).read_bytes()
    lines = content.split(b"\n")[:-1]  # text after the last newline is an incomplete line
    if not lines:
        if content.strip():
            raise _foreign(path)
        return []
    try:
        header = msgspec.json.decode(lines[0], type=_Header)
    except (msgspec.MsgspecError, RecursionError):
        raise _foreign(path) from None
    if (header.api_version, header.kind) != (_API_VERSION, _KIND):
        raise _foreign(path)
    found = []
    decoder = msgspec.json.Decoder(Recorded)
    for number, line in enumerate(lines[1:], 2):
        try:
            found.append(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SweepError(
                f"{path}:{number}: is no result of a run: {error}; remove the line, or give another file"
            ) from None
    return found


def _foreign(path: str | Path) -> SweepError:
    return SweepError(f"{path}: is there and holds no results of a sweep; it is not written to, give another name")
