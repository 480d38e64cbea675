#!/bin/sh
# Brings a Debian machine to where wanbed runs: Debian packages and a virtual environment in .venv.
# Usage: ./setup.sh demo|test|compiled|virtual|program NAME   (test adds what the tests need, compiled a compiler for the
# simulator, virtual what the kernel of virtual time is built from, program what the shipped experiment NAME needs for its
# program). Doing it again is quick.
set -eu
cd "$(dirname "$0")"

purpose=${1:-demo}
usage="setup.sh: usage: ./setup.sh demo|test|compiled|virtual|program NAME"
packages="mininet net-tools iperf3 iputils-ping iproute2 kmod user-mode-linux util-linux python3-venv"
extras=""
requirements=""
case "$purpose" in
  demo) ;;
  test) extras="[dev,rack,torch]"; packages="$packages chromium python3-dev wireguard-go wireguard-tools" ;;
  compiled) extras="[compiled]"; packages="$packages build-essential python3-dev" ;;
  virtual) ;;
  program)
    program="runner/experiments/programs/${2:-}"
    if [ ! -e "$program.yaml" ]; then
      names=$(basename -s .yaml runner/experiments/programs/*.yaml | xargs)
      echo "setup.sh: program ${2:-}: no shipped program has this name; there are: $names" >&2
      exit 2
    fi
    extras="[torch]"
    requirements=$(ls "$program.txt" 2>/dev/null || true)
    [ "$2" != deepspeed-zero ] || packages="$packages build-essential python3-dev" ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
case "$purpose" in
  test|virtual)
    packages="$packages build-essential flex bison bc libelf-dev xz-utils"
    # Any version of the source does, also one that came by its own name.
    ls /usr/src/linux-source-*.tar.xz >/dev/null 2>&1 || packages="$packages linux-source" ;;
esac

missing=""
for package in $packages; do
  dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -n "$missing" ]; then
  if [ "$(id -u)" -eq 0 ]; then
    root=""
  elif command -v sudo >/dev/null; then
    root="sudo"
  else
    echo "setup.sh: installing$missing needs root: run this as root, or install sudo" >&2
    exit 5
  fi
  echo "setup.sh: installing$missing"
  $root env DEBIAN_FRONTEND=noninteractive apt-get update -q
  # shellcheck disable=SC2086 # a list of packages
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

# A virtual environment that belongs to this checkout, these files and this purpose is complete already.
# shellcheck disable=SC2086 # one file or none
wanted=$(cat pyproject.toml constraints.txt $requirements | sha256sum | cut -d' ' -f1)
stamp=".venv/installed-$purpose${2:+-$2}"
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted $PWD" ]; then
  [ -x .venv/bin/python ] || python3 -m venv .venv
  # shellcheck disable=SC2086 # no requirements are no option
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
    ${requirements:+--requirement $requirements} --editable ".$extras"
  echo "$wanted $PWD" > "$stamp"
fi
