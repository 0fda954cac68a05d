"""Compiled kernels on disk: a folder of the user's, for files named by a hash of everything they depend on."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from time import time

# The most bytes of a folder: beyond, the files used longest ago are removed, down to the second number's part of it.
MOST_BYTES, STAYS = 256 << 20, 0.75

# Saves of a process after which it checks the folder's size again, and seconds in which uses of a file count once.
LOOK_AGAIN, DAY = 256, 86400.0

_OURS = re.compile(r"[0-9a-f]{40}\.\w+")


class Disk:
    """Compiled objects as files `<name><suffix>`: 32 bytes of SHA-256 of the name and the rest, then the object.

    Files are executed, so the folder must belong to the user, and one that others may write to is not used. Files are
    written under another name and renamed, so that no reader sees half a file; a file that does not match its seal is
    ignored, also one under another's name. Of more than MOST_BYTES, files used longest ago are removed. All failures of
    the disk are silent: it is only a cache.
    """

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self._saves: dict[Path, int] = {}

    def folder(self, given: str | None) -> Path | None:
        """Return the folder of a setting, created if needed; None if there shall be none or it cannot be trusted."""
        if given == "":
            return None
        try:
            path = Path(given).expanduser() if given is not None else _default_folder()
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if hasattr(os, "getuid"):
                found = path.stat()
                if found.st_uid != os.getuid() or found.st_mode & 0o022:
                    return None
            return path
        except (OSError, RuntimeError):
            return None

    def load(self, name: str, cache_dir: str | None) -> bytes | None:
        folder = self.folder(cache_dir)
        if folder is None:
            return None
        file = folder / f"{name}{self.suffix}"
        try:
            content = file.read_bytes()
            if file.stat().st_mtime < time() - DAY:
                os.utime(file)
        except OSError:
            return None
        seal, compiled = content[:32], content[32:]
        return compiled if _seal(name, compiled) == seal else None

    def save(self, name: str, compiled: bytes, cache_dir: str | None) -> None:
        folder = self.folder(cache_dir)
        if folder is None:
            return
        self._sweep(folder)
        aside = None
        try:
            handle, aside = tempfile.mkstemp(dir=folder, prefix=name, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(_seal(name, compiled) + compiled)
            os.replace(aside, folder / f"{name}{self.suffix}")
        except OSError:
            if aside is not None:
                with suppress(OSError):
                    os.unlink(aside)

    def _sweep(self, folder: Path) -> None:
        """Remove files that are too old or too many, at the first save in a folder and every LOOK_AGAIN saves."""
        saves = self._saves.get(folder, 0)
        self._saves[folder] = saves + 1
        if saves % LOOK_AGAIN == 0:
            with suppress(OSError):
                _sweep(folder)

    def drop(self, name: str, cache_dir: str | None) -> None:
        folder = self.folder(cache_dir)
        if folder is not None:
            with suppress(OSError):
                (folder / f"{name}{self.suffix}").unlink(missing_ok=True)


def _seal(name: str, compiled: bytes) -> bytes:
    return hashlib.sha256(name.encode() + compiled).digest()


def _sweep(folder: Path) -> None:
    """Remove files that killed processes left half written over an hour ago, and the oldest if there are too many."""
    found = []
    for file in folder.iterdir():
        with suppress(OSError):  # another process removes files too
            facts = file.stat()
            if file.suffix == ".part":
                if facts.st_mtime < time() - 3600:
                    file.unlink(missing_ok=True)
            elif _OURS.fullmatch(file.name):
                found.append((facts.st_mtime, facts.st_size, file))
    excess = sum([size for _, size, _ in found]) - MOST_BYTES
    if excess > 0:
        excess += int(MOST_BYTES * (1 - STAYS))
        for _, size, file in sorted(found):
            if excess <= 0:
                break
            with suppress(OSError):
                file.unlink(missing_ok=True)
            excess -= size


def _default_folder() -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache_home) if cache_home else Path.home() / ".cache"
    return base / "xtensor" / "kernels"
