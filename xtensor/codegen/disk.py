"""Compiled kernels on disk: a folder of the user's, for files named by a hash of everything they depend on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from time import time


class Disk:
    """Compiled objects as files `<name><suffix>`: 32 bytes of SHA-256 of the rest, then the object.

    Files are executed, so the folder belongs to the user alone, and one that others may write to is not used. They
    are written aside and renamed, so that no reader sees half a file; whatever does not match its seal is ignored.
    All failures of the disk are silent: it is only a cache.
    """

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self._swept: set[Path] = set()

    def folder(self, given: str | None) -> Path | None:
        """Return the folder of a setting, made if need be; None where there shall be none or it cannot be trusted."""
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
        try:
            content = (folder / f"{name}{self.suffix}").read_bytes()
        except OSError:
            return None
        seal, compiled = content[:32], content[32:]
        return compiled if hashlib.sha256(compiled).digest() == seal else None

    def save(self, name: str, compiled: bytes, cache_dir: str | None) -> None:
        folder = self.folder(cache_dir)
        if folder is None:
            return
        self._sweep(folder)
        aside = None
        try:
            handle, aside = tempfile.mkstemp(dir=folder, prefix=name, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(compiled).digest() + compiled)
            os.replace(aside, folder / f"{name}{self.suffix}")
        except OSError:
            if aside is not None:
                with suppress(OSError):
                    os.unlink(aside)

    def _sweep(self, folder: Path) -> None:
        """Remove, once in a process, what killed processes left half written an hour ago and more."""
        if folder in self._swept:
            return
        self._swept.add(folder)
        with suppress(OSError):
            for file in folder.glob("*.part"):
                if file.stat().st_mtime < time() - 3600:
                    file.unlink(missing_ok=True)

    def drop(self, name: str, cache_dir: str | None) -> None:
        folder = self.folder(cache_dir)
        if folder is not None:
            with suppress(OSError):
                (folder / f"{name}{self.suffix}").unlink(missing_ok=True)


def _default_folder() -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache_home) if cache_home else Path.home() / ".cache"
    return base / "xtensor" / "kernels"
