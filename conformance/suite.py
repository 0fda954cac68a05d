"""Where the array API test suite is, which commits are meant, and how to get them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

SUITE_COMMIT = "55fcc60179efa2680ddd6cd926ddf17b83530e2b"
STANDARD_COMMIT = "5f847a3858875c682ae901aa22b0413bf24be9da"
SUITE_URL = "https://github.com/data-apis/array-api-tests"
STANDARD_URL = "https://github.com/data-apis/array-api"


class SuiteError(Exception):
    """The suite cannot be used: it is not at the pinned commits, or cannot be fetched."""


class SuiteMissingError(SuiteError):
    """There is no suite where it was looked for."""


@dataclass(frozen=True)
class Suite:
    """A checkout of array-api-tests, with the standard's own repository inside it."""

    path: Path

    @property
    def tests(self) -> Path:
        """The folder with one test file per chapter."""
        return self.path / "array_api_tests"

    @property
    def standard(self) -> Path:
        """The checkout of the standard, a submodule of the suite."""
        return self.path / "array-api"

    @property
    def stubs(self) -> Path:
        """The standard's functions as Python files without bodies."""
        return self.standard / "src" / "array_api_stubs" / "_2025_12"

    def chapters(self) -> list[str]:
        """The names of the chapters: test files without `test_` and `.py`."""
        return sorted(file.stem.removeprefix("test_") for file in self.tests.glob("test_*.py"))

    def commits(self) -> dict[str, str]:
        """The commits that the suite and the standard stand at."""
        return {"array-api-tests": commit_of(self.path), "array-api": commit_of(self.standard)}


def cache_folder() -> Path:
    """Where --download puts the suite."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "xtensor" / "conformance" / "array-api-tests"


def find(given: Path | None = None) -> Suite:
    """Return the suite from the given folder, else from $ARRAY_API_TESTS_DIR, else from the cache."""
    path = given or os.environ.get("ARRAY_API_TESTS_DIR") or cache_folder()
    suite = Suite(Path(path).expanduser().resolve())
    for folder in (suite.tests, suite.stubs):
        if not folder.is_dir():
            raise SuiteMissingError(
                f"the array API test suite was not found: {folder} does not exist; "
                "name its folder with --suite or $ARRAY_API_TESTS_DIR, or fetch it with --download"
            )
    return suite


def check_pins(suite: Suite) -> None:
    """Raise unless both checkouts stand, unchanged, at the commits that results are quoted for."""
    pins = [(suite.path, SUITE_COMMIT), (suite.standard, STANDARD_COMMIT)]
    found = [(path, pin, commit_of(path)) for path, pin in pins]
    wrong = [f"{path}: expected {pin}, found {commit}" for path, pin, commit in found if commit != pin]
    if wrong:
        hint = "fetch the right one with --download, or accept this one with --any-commit"
        raise SuiteError("\n".join(["the suite is not at the pinned commits", *wrong, hint]))


def commit_of(path: Path) -> str:
    """Return the commit of a checkout, with `+changes` if tracked files differ from it."""
    try:
        commit = git(path, "rev-parse", "HEAD")
        changes = git(path, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    except (OSError, subprocess.CalledProcessError):
        return "no git commit"
    return commit + "+changes" if changes else commit


def download(suite_url: str = SUITE_URL, standard_url: str = STANDARD_URL) -> Suite:
    """Fill the cache folder with the suite and the standard at the pinned commits."""
    suite = Suite(cache_folder())
    fetch(suite_url, SUITE_COMMIT, suite.path)
    fetch(standard_url, STANDARD_COMMIT, suite.standard)
    return find(suite.path)


def fetch(url: str, commit: str, path: Path) -> None:
    """Bring one commit of a repository, and nothing else of its history, to a folder."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        git(path, "init", "--quiet")
        git(path, "fetch", "--quiet", "--depth", "1", url, commit)
        git(path, "checkout", "--quiet", "--detach", commit)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        raise SuiteError(f"git could not fetch {commit} from {url}: {reason}") from error


def git(path: Path, *args: str) -> str:
    """Run git in a folder and return what it prints."""
    command = ["git", "-C", str(path), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
