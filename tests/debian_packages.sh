#!/usr/bin/env bash
# Lay Debian's packages, and what they depend on, out in a folder of their own, where nothing of the system's is touched:
#   tests/debian_packages.sh FOLDER ARCHITECTURE SUITE PACKAGE...        fills FOLDER/root
# Needs a Debian with its archive: apt-get and dpkg-deb.
set -euo pipefail
source /etc/os-release
folder=$1 architecture=$2 suite=$3
shift 3
cd "$folder"
mkdir -p state/lists/partial cache/archives/partial root
touch state/status
archive=$(apt-get indextargets --format '$(REPO_URI)' "Created-By: Packages" "Component: main" "Release: $VERSION_CODENAME")
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${archive%%$'\n'*} $suite main" >sources.list
cat >apt.conf <<CONF
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$folder/state";
Dir::State::status "$folder/state/status";
Dir::Cache "$folder/cache";
CONF
export APT_CONFIG="$folder/apt.conf"
apt-get update >&2
apt-get install -y --download-only --no-install-recommends "$@" >&2
for package in cache/archives/*.deb; do dpkg-deb -x "$package" root; done
