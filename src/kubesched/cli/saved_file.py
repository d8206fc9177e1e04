"""Files that commands write. A saved cluster is written by one run at a time, and a failed save loses nothing.

Callers: :mod:`.up_command` and :mod:`.import_command` for saved clusters, whose format is in
:mod:`kubesched.cluster.files.snapshot_file`. Commands with other results use :func:`output_file`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from kubesched.base.turns import in_turns
from kubesched.base.whole_file import remove_leftover, whole_file
from kubesched.cluster.files import is_saved_cluster, saving
from kubesched.cluster.store import Store
from kubesched.explain.records import DecisionFile

from .errors import CliError

__all__ = [
    "claimed",
    "decision_file",
    "output_file",
    "refuse_inputs",
    "refuse_missing_directory",
    "refuse_other_file",
    "refuse_to_overwrite",
    "save_or_rescue",
]

#: Errors of a full or failing file system. The system does not say which file they concern.
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def claimed(given: str, option: str) -> Iterator[None]:
    """Keep other runs from a file that will be replaced, and check now that it can be replaced.

    A second file, ``.NAME.lock``, is locked for that time. The lock ends with its process, even a killed one.

    Raises:
        CliError: if another run holds the file, if no file can be made in its directory, or if the path is not a
            regular file. ``option`` is the user's name for it.
    """
    path = Path(os.path.realpath(given))
    where = f"{option} {given}"
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise CliError(f"{where}: exists and is not a regular file; give the name of a file")
    place = path.with_name(f".{path.name}.lock")
    try:
        remove_leftover(path)
        descriptor = _locked(place)
    except BlockingIOError:
        text = (
            f"{where}: is in use by another kubesched{_holder(place)}; stop that one first, or give a copy of the file"
        )
        raise CliError(text) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CliError(
            f"{where}: cannot be saved there ({path.parent}: {reason}); give a file in a directory that you can write to"
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            place.unlink()  # still locked: a waiting process then checks that the file exists
        os.close(descriptor)


@contextmanager
def output_file(given: str, option: str) -> Iterator[BinaryIO]:
    """Open a file for a command's result, from the beginning; see :func:`~kubesched.base.whole_file.whole_file`.

    Raises:
        CliError: if it cannot be written. ``option`` is the user's name for it.
    """
    where = f"{option} {given}"
    if not given:
        raise CliError(f"{option}: the name of the file is empty", code=2)
    refuse_missing_directory(given, option)
    with ExitStack() as opened:
        try:
            file = opened.enter_context(whole_file(given))
        except OSError as error:
            raise CliError(f"{where}: cannot be written: {error.strerror or error}") from None
        try:
            yield file
            opened.close()
        except OSError as error:
            if error.filename is None and error.errno in _DISK:
                raise CliError(f"{where}: cannot be written: {error.strerror}") from None
            raise


def decision_file(given: str) -> DecisionFile:
    """Create the file of ``--decisions``.

    Raises:
        CliError: if it cannot be written, or holds something else.
    """
    if not given:
        raise CliError("--decisions: the name of the file is empty", code=2)
    refuse_missing_directory(given, "--decisions")
    try:
        return DecisionFile(given)
    except OSError as error:
        raise CliError(f"--decisions {given}: {error.strerror or error}") from None


def refuse_missing_directory(given: str, option: str) -> None:
    """Check the directory of an output file. No command makes one, so that a mistyped name is noticed.

    Raises:
        CliError: if the directory does not exist.
    """
    parent = Path(given).parent
    if not parent.exists():
        raise CliError(f"{option} {given}: there is no directory {parent}")
    if not parent.is_dir():
        raise CliError(f"{option} {given}: cannot be written: Not a directory")


def refuse_to_overwrite(given: str, option: str, advice: str) -> None:
    """Check that an output file does not overwrite a file that a user may have written.

    Raises:
        CliError: if the file exists and is not empty.
    """
    path = Path(given)
    if path.is_file() and path.stat().st_size:
        raise CliError(f"{option} {given}: exists and is not overwritten; {advice}")


def refuse_inputs(outputs: Iterable[tuple[str, str]], inputs: Iterable[str]) -> None:
    """Check that no output takes the place of an input.

    Raises:
        CliError: if one of ``outputs`` (option and name) is one of ``inputs``, or a file in an input directory.
    """
    read = {os.path.realpath(name) for name in inputs}
    for option, given in outputs:
        place = Path(os.path.realpath(given))
        if str(place) in read or (place.is_file() and not read.isdisjoint(map(str, place.parents))):
            raise CliError(
                f"{option} {given}: is read by this command, and is not overwritten; give another name", code=2
            )


def refuse_other_file(given: str, option: str) -> None:
    """Check that an output file overwrites nothing but an older saved cluster.

    Raises:
        CliError: if the file exists, is not empty and holds something else.
    """
    path = Path(given)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size and not is_saved_cluster(path):
            raise CliError(
                f"{option} {given}: exists and is not a saved cluster; it is not overwritten, give another name"
            )


def _locked(place: Path) -> int:
    """Lock the lock file and write this process's id into it. Return its descriptor."""
    while True:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                same = os.fstat(descriptor).st_ino == place.stat().st_ino
            except FileNotFoundError:
                same = False  # the process that held the lock has just ended
            if same:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(place: Path) -> str:
    try:
        text = place.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (process {text})" if text.isdigit() else ""


async def save_or_rescue(store: Store, path: str) -> int:
    """Save a cluster. If that fails, save it to a temporary directory instead.

    Raises:
        CliError: if it was not saved to ``path``; the text says where it is instead.
    """
    try:
        return await in_turns(saving(store, path))
    except OSError as error:
        reason = error.strerror or str(error)
    try:
        rescue = Path(tempfile.mkdtemp(prefix="kubesched-saved-")) / Path(path).name
        count = await in_turns(saving(store, rescue))
    except OSError as error:
        raise CliError(
            f"{path}: cannot be saved: {reason}; nor in {tempfile.gettempdir()}: {error.strerror or error}; "
            "the old file is unchanged, and the changes of this run are lost"
        ) from None
    raise CliError(
        f"{path}: cannot be saved: {reason}; the old file is unchanged. "
        f"The cluster's {count} objects are in {rescue}: move that file to where it belongs"
    )
