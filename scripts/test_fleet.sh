#!/usr/bin/env bash
# Runs a fleet on the engines of examples/fleet/ and trigen.fleet, on this machine and the emulated device: Slurm's own daemons, Ray, the commands
# of the Kubernetes manifests, and stores (S3, HTTP). In each a worker is killed, and each must make the same base, byte for byte, as one tuner
# that nobody disturbed. A minute; what is not installed here says [SKIP].
# Usage: scripts/test_fleet.sh [--install] [BUILD_DIR]
#   --install   brings Debian's slurmctld, slurmd, slurm-client and munge (as root), and Ray, moto and s3fs into build/fleet-venv
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ${1:-} == --install ]]; then
  shift
  packages=(slurmctld slurmd slurm-client munge procps)
  if [[ $(id -u) == 0 ]] && ! dpkg-query -W "${packages[@]}" >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
  fi
  [[ -x build/fleet-venv/bin/python ]] || python3 -m venv build/fleet-venv
  build/fleet-venv/bin/pip install --quiet --disable-pip-version-check 'ray>=2.9' 'moto[server]>=5' s3fs pytest
fi
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$PWD/$build/trigen" "$work/bin/trigen"
export PATH=$work/bin:$PATH TRIGEN_PROGRAM=$PWD/$build/trigen TRIGEN_NVRTC=$PWD/build/nvrtc XDG_CACHE_HOME=$work/home
export SOURCE_DATE_EPOCH=1700000000  # dates are a bundle's only bytes that two runs do not share
unset TRIGEN_CACHE TRIGEN_DRIVER TRIGEN_NO_JIT
python=build/fleet-venv/bin/python
[[ -x $python ]] || python=python3
since=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - since)) "$*"; }
same() { cmp "$1" "$work/reference/base.trigen" || { echo "test_fleet: $2 made another base" >&2; exit 1; }; }
options=(--candidates 1)

say "one tuner, two kinds of device"
mkdir -p "$work/reference"
list=$work/reference/problems.txt
printf 'forward,dtype=f16,B=2,T=%s,D=64\n' 16 24 32 40 48 56 >"$list"
for arch in sm_70 sm_80; do
  trigen tune --problems "$list" --fleet "$work/reference/shards" --device emulated:$arch "${options[@]}" >/dev/null 2>"$work/log" || { cat "$work/log"; exit 1; }
done
trigen cache merge "$work/reference/shards" -o "$work/reference/base.trigen"
trigen cache status --problems "$list" --fleet "$work/reference/shards" >/dev/null
export TRIGEN_FLEET_REFERENCE=$work/reference

missing=
for tool in slurmctld slurmd munged; do command -v $tool >/dev/null || missing+=" $tool"; done
[[ $(id -u) == 0 ]] || missing+=" root"
if [[ -n $missing ]]; then
  say "[SKIP] Slurm: no$missing here"
else
  say "Slurm: three nodes, one of them lost"
  TUNE_OPTIONS="${options[*]} --publish 1ms" tests/fleet/slurm.sh "$work/slurm" "$list"
  same "$work/slurm/base.trigen" Slurm
fi

if "$python" -c 'import yaml' 2>/dev/null; then
  say "Kubernetes: the Indexed Job's commands, one pod killed"
  for arch in sm_70 sm_80; do
    mkdir -p "$work/kubernetes"
    cp "$list" "$work/kubernetes/"
    TRIGEN_DRIVER=emulated:$arch "$python" tests/fleet/kubernetes.py "$work/kubernetes" "${options[@]}" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    rm -f "$work"/kubernetes/*.db
  done
  same "$work/kubernetes/base.trigen" Kubernetes
else
  say "[SKIP] Kubernetes: $python has no yaml"
fi

if "$python" -c 'import pytest' 2>/dev/null; then
  say "Ray, S3 and HTTP"
  "$python" -m pytest -q -rs -p no:cacheprovider tests/fleet
else
  say "[SKIP] Ray, S3 and HTTP: $python has no pytest; --install makes an environment"
fi
say "all made the same base"
