"""Files that commands write. The one a cluster is saved to: one run at a time, and no save that loses what there was to save.

Callers: :mod:`.up_command` for its snapshot, :mod:`.import_command` for what it writes; the format is in
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

from .errors import CliError

__all__ = [
    "claimed",
    "output_file",
    "refuse_inputs",
    "refuse_missing_directory",
    "refuse_other_file",
    "refuse_to_overwrite",
    "save_or_rescue",
]

#: Errors of a file system that cannot take more; the system does not say of which file.
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def claimed(given: str, option: str) -> Iterator[None]:
    """Keep other runs off a file that is going to be replaced, and find out now whether that can be done.

    A second file, ``.NAME.lock``, is locked meanwhile; the lock ends with its process, even if that is killed.

    Raises:
        CliError: when another run holds the file, when no file can be made in its directory, or when the path is
            that of a directory, a device or the like. ``option`` is how the user named it.
    """
    path = Path(os.path.realpath(given))
    where = f"{option} {given}"
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise CliError(f"{where}: is there and is no regular file; give the name of a file")
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
            place.unlink()  # while it is still locked: a waiting process checks whether the file still exists
        os.close(descriptor)


@contextmanager
def output_file(given: str, option: str) -> Iterator[BinaryIO]:
    """A file that a command writes its result to, open from the beginning: see :func:`~kubesched.base.whole_file.whole_file`.

    Raises:
        CliError: when it cannot be written; ``option`` is how the user named it.
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


def refuse_missing_directory(given: str, option: str) -> None:
    """No command makes directories for the files that it writes: a name that is mistyped is to be noticed.

    Raises:
        CliError: when the file's directory is not there.
    """
    parent = Path(given).parent
    if not parent.exists():
        raise CliError(f"{option} {given}: there is no directory {parent}")
    if not parent.is_dir():
        raise CliError(f"{option} {given}: cannot be written: Not a directory")


def refuse_to_overwrite(given: str, option: str, advice: str) -> None:
    """Nothing that people write themselves is written over unasked.

    Raises:
        CliError: when the file is there and is not empty.
    """
    path = Path(given)
    if path.is_file() and path.stat().st_size:
        raise CliError(f"{option} {given}: is there and is not overwritten; {advice}")


def refuse_inputs(outputs: Iterable[tuple[str, str]], inputs: Iterable[str]) -> None:
    """A result never takes the place of what it was made from.

    Raises:
        CliError: when one of ``outputs``, by option and name, is one of ``inputs``, or a file in a directory of these.
    """
    read = {os.path.realpath(name) for name in inputs}
    for option, given in outputs:
        place = Path(os.path.realpath(given))
        if str(place) in read or (place.is_file() and not read.isdisjoint(map(str, place.parents))):
            raise CliError(
                f"{option} {given}: is read by this command, and is not overwritten; give another name", code=2
            )


def refuse_other_file(given: str, option: str) -> None:
    """Nothing but an older saved cluster is written over.

    Raises:
        CliError: when the file is there, is not empty and holds something else.
    """
    path = Path(given)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size and not is_saved_cluster(path):
            raise CliError(
                f"{option} {given}: is there and is no saved cluster; it is not overwritten, give another name"
            )


def _locked(place: Path) -> int:
    """A descriptor of the lock file, which is ours and has our process id in it."""
    while True:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                same = os.fstat(descriptor).st_ino == place.stat().st_ino
            except FileNotFoundError:
                same = False  # its holder has just ended
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
    """Save a cluster; where that fails, to a directory for temporary files rather than not at all.

    Raises:
        CliError: when it was not saved where it should be, saying where it is instead.
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
            "what was there before is unchanged, what happened in this run is lost"
        ) from None
    raise CliError(
        f"{path}: cannot be saved: {reason}; what was there before is unchanged. "
        f"The cluster's {count} objects are in {rescue}: move that file to where it belongs"
    )
