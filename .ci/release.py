"""Build what is released, and check it: `make release` leaves wheel, sdist and bill of materials in dist/.

The wheel and the sdist are built twice, from two fresh checkouts, and have to be the same bytes; for every supported
Python that is found the wheel is then installed, with the extra `demo`, in an environment of its own, which runs the
tour, and the sdist in another, which imports the package. With `--here` they replace what is installed in the
environment that runs this, one after the other, and both run the tour there. Where pip-audit is installed it looks the
dependencies up. Needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")


def run(*command: str | Path, **given: Any) -> str:
    """Return what a command says; a failure ends the release."""
    return subprocess.run(
        [str(part) for part in command], check=True, text=True, stdout=subprocess.PIPE, **given
    ).stdout


def commit_time() -> str:
    """Return when the commit was made, which is the time of every file of what is built."""
    return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()


def built(folder: Path) -> dict[str, str]:
    """Build a checkout of the commit in a folder; return the digest of each file by its name."""
    source, out = folder / "source", folder / "dist"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "x", "-C", str(source)], input=archive, check=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": commit_time(), "PYTHONHASHSEED": "random"}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, env=environment)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(out.iterdir())}


def build() -> dict[str, str]:
    """Build twice, keep what both agree on in dist/, and return the digests."""
    found = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as scratch:
            found.append(built(Path(scratch)))
            shutil.rmtree(DIST, ignore_errors=True)
            shutil.copytree(Path(scratch) / "dist", DIST)
    if found[0] != found[1]:
        raise SystemExit(f"two builds differ: {found[0]} and {found[1]}")
    return found[0]


def pythons() -> list[str]:
    """Return the supported Pythons that are found and start."""
    found = [path for version in PYTHONS if (path := shutil.which(f"python{version}"))]
    return [path for path in found if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0]


def environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """Return the interpreter of a fresh environment with some packages."""
    run(python, "-m", "venv", folder)
    made = folder / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", *packages)
    return made


def check_installed(wheel: Path, sdist: Path) -> None:
    """Install the wheel and the sdist for every Python, each in an environment of its own, and use them."""
    for python in pythons():
        with tempfile.TemporaryDirectory() as scratch:
            made = environment(python, Path(scratch) / "wheel", f"xtensor[demo] @ {wheel.as_uri()}")
            print(python, run(made, "-m", "xtensor", "tour", cwd=scratch).splitlines()[-1])
            made = environment(python, Path(scratch) / "sdist", sdist)
            print(python, run(made, "-m", "xtensor", "info", cwd=scratch).splitlines()[0])


def check_here(*files: Path) -> None:
    """Install files in this environment, each in the place of what was there, and let each run the tour."""
    with tempfile.TemporaryDirectory() as scratch:
        for file in files:
            given = ["--quiet", "--force-reinstall", "--no-deps", "--no-build-isolation"]
            run(sys.executable, "-m", "pip", "install", *given, file)
            where = run(sys.executable, "-c", "import xtensor; print(xtensor.__file__)", cwd=scratch).strip()
            if Path(where).is_relative_to(ROOT):
                raise SystemExit(f"{file.name} is not what is imported, but {where}")
            print(file.name, run(sys.executable, "-m", "xtensor", "tour", cwd=scratch).splitlines()[-1])


def bill(names: dict[str, str]) -> dict[str, Any]:
    """Return the bill of materials, by CycloneDX 1.6: what is released, and what it asks for, as installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {part.split(">")[0].split("[")[0] for part in project["dependencies"]} | {"llvmlite"}
    installed = {one.metadata["Name"]: one for one in distributions() if one.metadata["Name"] in wanted}
    if missing := wanted - installed.keys():
        raise SystemExit(f"not installed here, so the bill of materials has no version of them: {sorted(missing)}")
    reference = f"pkg:pypi/{project['name']}@{project['version']}"
    components = [
        {
            "type": "library",
            "name": name,
            "version": one.version,
            "purl": (purl := f"pkg:pypi/{name}@{one.version}"),
            "bom-ref": purl,
            "scope": "optional" if name == "llvmlite" else "required",
        }
        for name, one in sorted(installed.items())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, ''.join(names.values()))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": project["name"],
                "version": project["version"],
                "purl": reference,
                "bom-ref": reference,
                "licenses": [{"license": {"id": project["license"]}}],
                "hashes": [{"alg": "SHA-256", "content": content} for content in names.values()],
            }
        },
        "components": components,
        "dependencies": [{"ref": reference, "dependsOn": [one["purl"] for one in components]}],
    }


def audit(components: list[dict[str, Any]]) -> str:
    """Return what pip-audit says of the components; that it is not there, or cannot ask anybody, is said too."""
    if shutil.which("pip-audit") is None:
        return "pip-audit is not installed"
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "requirements.txt"
        wanted.write_text("".join(f"{one['name']}=={one['version']}\n" for one in components), encoding="utf-8")
        command = ["pip-audit", "--disable-pip", "--no-deps", "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout + done.stderr
    unasked = [one["name"] for one in components if f"could not be audited: {one['name']}" in text]
    if unasked:
        return f"pip-audit could not ask about {', '.join(unasked)}: nothing is known of them"
    if done.returncode:
        raise SystemExit(text)
    return text.strip().splitlines()[-1]


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="build and compare only")
    parser.add_argument("--here", action="store_true", help="install in this environment, whatever is there")
    given = parser.parse_args()
    names = build()
    for name, content in names.items():
        print(f"{content}  {name}")
    found = bill(names)
    (DIST / "xtensor.cdx.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(audit(found["components"]))
    wheel, sdist = (next(DIST / name for name in names if name.endswith(end)) for end in (".whl", ".tar.gz"))
    if given.here:
        check_here(wheel, sdist)
    elif not given.no_install:
        check_installed(wheel, sdist)


if __name__ == "__main__":
    main()
