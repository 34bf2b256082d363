#!/usr/bin/env bash
# Installs what building trigen needs: Debian 12 / Ubuntu 24.04 packages and NVIDIA's NVRTC wheel (into build/nvrtc).
# Usage: scripts/setup.sh [--dev | --release]   (--dev: also the test and lint tools; --release: also what scripts/release.sh needs)
# Idempotent; works as root or with sudo; needs no GPU and no CUDA toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(cmake ninja-build g++ pkg-config ca-certificates zlib1g-dev libzstd-dev libsqlite3-dev libsodium-dev
          make libcli11-dev nlohmann-json3-dev python3-pip python3-venv)
if [[ ${1:-} == --dev || ${1:-} == --release ]]; then
  packages+=(libfuse3-dev fuse3 libgtest-dev libgmock-dev libbenchmark-dev minisign clang-14 clang-format-14 clang-tidy-14 lld-14
             libclang-rt-14-dev zstd  # libFuzzer, and what it found
             zsh fish groff-base  # read the completions and the man page, in a test
             buildah skopeo mmdebstrap)
fi
# Sources of what a portable build compiles itself, and what runs aarch64's tests.
if [[ ${1:-} == --release ]]; then packages+=(dpkg-dev tcl make xz-utils qemu-user-static patchelf); fi

say() { printf '==> %s\n' "$*"; }
as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else
    printf 'error: %s needs root; run as root or install sudo\n' "$1" >&2
    exit 1
  fi
}
installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

if ! command -v apt-get >/dev/null; then
  printf 'error: this script knows Debian 12 and Ubuntu 24.04 (apt-get); elsewhere install: %s llvm-dev\n' "${packages[*]}" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
# LLVM 14 is in both distributions and is what CI builds with; a newer one works too.
llvm=
for candidate in llvm-14-dev llvm-dev; do installed "$candidate" && llvm=$candidate && break; done
if [[ -z $llvm || ${#missing[@]} -gt 0 ]]; then
  say "installing packages: ${missing[*]} ${llvm:-llvm-14-dev}"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -qq
  if [[ -z $llvm ]]; then
    if apt-cache show llvm-14-dev >/dev/null 2>&1; then missing+=(llvm-14-dev); else missing+=(llvm-dev); fi
  fi
  # A browser without a screen, for one test; Debian has the package, Ubuntu has not.
  if [[ -n ${1:-} ]] && apt-cache show chromium-headless-shell >/dev/null 2>&1; then missing+=(chromium-headless-shell); fi
  as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  say "packages: all present"
fi

# install_wheel <folder>: the one wheel of scripts/pins/<folder>.txt into build/<folder>, whole or not at all.
install_wheel() {
  local wheel
  wheel=$(sed -n 's/^\([a-z0-9.=-]*==[0-9.]*\).*/\1/p' "scripts/pins/$1.txt")
  if [[ -d build/$1/nvidia ]]; then
    say "$wheel: build/$1 holds it"
    return
  fi
  say "installing $wheel into build/$1"
  mkdir -p build
  rm -rf "build/$1.partial" "build/$1"
  python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore \
    --only-binary :all: --require-hashes --target "build/$1.partial" -r "scripts/pins/$1.txt"
  mv "build/$1.partial" "build/$1"
}
install_wheel nvrtc  # 90 MB; only the compiler, no toolkit
if [[ -n ${1:-} ]]; then install_wheel nvrtc13; fi
