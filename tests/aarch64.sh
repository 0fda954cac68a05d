#!/usr/bin/env bash
# Make a command that runs Debian's arm64 Python under qemu-user, with the packages that tests/machines.py needs:
#   tests/aarch64.sh FOLDER        prints the command; nothing is installed outside FOLDER.
# Needs apt-get and dpkg-deb (the Debian archive), and pip (wheels for manylinux, aarch64).
set -euo pipefail
tests=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$folder"

if [ ! -x qemu/usr/bin/qemu-aarch64-static ]; then
    apt-get download qemu-user-static >&2
    dpkg-deb -x qemu-user-static_*.deb qemu
fi

if [ ! -x root/usr/bin/python3.11 ]; then
    "$tests/debian_packages.sh" "$folder" arm64 bookworm python3.11 zlib1g libstdc++6 libgcc-s1 libffi8
fi

if [ ! -d site ]; then
    python3 -m pip download --quiet --dest wheels --only-binary=:all: \
        --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 \
        --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
        numpy llvmlite array-api-compat pytest mpmath >&2
    for wheel in wheels/*.whl; do python3 -m zipfile -e "$wheel" site; done
fi

cat >python <<RUN
#!/bin/sh
PYTHONPATH="\${PYTHONPATH:+\$PYTHONPATH:}$folder/site" exec "$folder/qemu/usr/bin/qemu-aarch64-static" -L "$folder/root" "$folder/root/usr/bin/python3.11" "\$@"
RUN
chmod +x python
echo "$folder/python"
