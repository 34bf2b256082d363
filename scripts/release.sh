#!/usr/bin/env bash
# Makes what a release has into dist/<version> and tries each file as a user gets it: wheels, Debian and conda packages for glibc 2.28,
# core.trigen (the shipped lists' kernels), air-gap archives, the source archive, a bill of materials, SHA256SUMS, signatures.
# docs/how-to/release.md. From a clean checkout; needs root for the images.
# Usage: scripts/release.sh [--key FILE] [STEP...]       (default: all of them, into an empty dist/<version>)
#   build    libraries and programs (scripts/portable.sh), wheels, Debian packages; names, symbols (auditwheel) and sizes are checked
#   bundle   core.trigen: one kernel a problem of the shipped lists for each of ARCHS, by the cost model; goes on where it was stopped
#   source   the source archive
#   conda    conda packages (scripts/conda.sh)
#   airgap   air-gap archives (scripts/airgap.sh)
#   sbom     trigen-<version>.cdx.json (scripts/sbom.py), checked against CycloneDX's schema
#   sums     SHA256SUMS and its signature
#   check    sums, signatures; packages, wheel, bundle and archive installed and used; an old glibc; aarch64 under qemu-user
# Environment: TRIGEN_RELEASE_KEY=FILE  as --key: a secret key of `trigen cache keygen`; without one the release is unsigned
#              MACHINES="x86_64 aarch64"  GLIBC=2.28  ARCHS="sm_70 sm_80 sm_90a sm_120a"  LISTS="core mixers"
#              TESTS=...  the tests that run under qemu-user (scripts/test_foreign.sh; default: none, the packages alone)
set -euo pipefail
cd "$(dirname "$0")/.."
read -ra machines <<<"${MACHINES:-x86_64 aarch64}"
read -ra archs <<<"${ARCHS:-sm_70 sm_80 sm_90a sm_120a}"
read -ra lists <<<"${LISTS:-core mixers}"
export GLIBC=${GLIBC:-2.28}
key=${TRIGEN_RELEASE_KEY:-}
all=(build bundle source conda airgap sbom sums check)
say() { printf '\n==> release: %s (%s)\n' "$*" "$(date +%T)"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
  exit 0
fi
if [[ ${1:-} == --key ]]; then
  [[ -n ${2:-} ]] || fail "--key needs a file: the secret key of trigen cache keygen"
  key=$2
  shift 2
fi
for step in "$@"; do
  [[ " ${all[*]} " == *" $step "* ]] || fail "found '$step'; the steps are ${all[*]}"
done
[[ -z $key || -r $key ]] || fail "key '$key' cannot be read; make one with trigen cache keygen --key FILE, and sign with its secret file"
[[ -z $key || -r $key.pub ]] || fail "the public key '$key.pub' is not beside the secret one; signatures are checked with it"

say "one version everywhere"
version=$(sed -n 's/^project(trigen VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python_version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/trigen/_version.py)
changes=$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGELOG.md | head -1)
library=libtrigen${version%.*}
[[ $python_version == "$version" ]] || fail "CMakeLists.txt has version $version, python/trigen/_version.py $python_version"
[[ $changes == "$version" ]] || fail "CMakeLists.txt has version $version, CHANGELOG.md begins with $changes"
grep -q "${library}_" containers/Dockerfile || fail "containers/Dockerfile does not install $library"
# The source archive is HEAD's: the binaries are to be, too.
[[ -z $(git status --porcelain) ]] || fail "files here are not what the commit has; commit or remove: $(git status --porcelain | head -5 | tr '\n' ' ')"
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
echo "$version, commit $commit"

say "what the build needs"
scripts/setup.sh --release
out=$PWD/dist/$version
portable=build-portable
venv=$portable/release-venv
host=$portable/$(uname -m)
[[ $# -gt 0 ]] || rm -rf "$out"
mkdir -p "$out"
[[ -e $venv/complete-3 ]] || {
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r scripts/pins/release.txt
  touch "$venv/complete-3"
}

wheel_of() { echo "$out/trigen-$version"-py3-none-manylinux_2_*_"$1".whl; }
# sign FILE...: FILE.minisig beside each, or nothing without a key.
sign() {
  [[ -n $key ]] || return 0
  "$host/trigen" cache sign --key "$key" "$@"
}

build() {
  local machine wheel
  for machine in "${machines[@]}"; do
    say "build for $machine"
    scripts/portable.sh "$machine"
    rm -f "$out"/*"_$machine.whl"
    PYTHON=$venv/bin/python scripts/build_wheel.sh "$portable/$machine" "$out"
    wheel=$(wheel_of "$machine")
    "$venv/bin/auditwheel" show "$wheel" | tee "$portable/auditwheel.txt"
    tr '\n' ' ' <"$portable/auditwheel.txt" | grep -qE "consistent with the following platform tag: +\"manylinux_${GLIBC/./_}_$machine\"|manylinux_2_(17|[0-9])_" ||
      fail "auditwheel does not agree with ${wheel##*/}"
    "$venv/bin/twine" check --strict "$wheel"
    rm -rf "$portable/$machine/cpack"
    (cd "$portable/$machine" && cpack --config CPackConfig.cmake -B cpack >/dev/null && cp cpack/*.deb "$out/")
    [[ $(stat -c %s "$portable/$machine/libtrigen.so.$version") -le 6100000 ]] || fail "libtrigen.so of $machine is larger than 6.1 MB"
  done
}

bundle() {
  # A commit's own cache: what was compiled before the step was stopped stays, what other sources made stays out.
  local cache=$PWD/$portable/bundle-$commit.db arch
  for arch in "${archs[@]}"; do
    say "kernels for $arch"
    # The images' example runs a problem that is in no list.
    TRIGEN_CACHE=$cache TRIGEN_NVRTC=$PWD/build/nvrtc "$host/trigen" tune "${lists[@]/#/--list=}" --problems containers/problems.txt --arch "$arch" \
      --no-device --candidates 1 >"$portable/tune.log" 2>&1 || { cat "$portable/tune.log" >&2; fail "no kernels for $arch"; }
  done
  rm -f "$out"/core.trigen*
  TRIGEN_CACHE=$cache "$host/trigen" cache export "$out/core.trigen"
  sign "$out/core.trigen"
}

source_archive() {
  say "source archive"
  "$venv/bin/python" -c 'import sys; sys.path.insert(0, "packaging"); import source_build; source_build.build_sdist(sys.argv[1])' "$out" \
    >"$portable/source.log" 2>&1 || { cat "$portable/source.log" >&2; fail "no source archive"; }
  "$venv/bin/twine" check --strict "$out/trigen-$version.tar.gz"
}

conda() {
  local machine
  rm -rf "$out/conda"
  for machine in "${machines[@]}"; do
    say "conda packages of $machine"
    scripts/conda.sh "$out" "$machine"
  done
}

airgap() {
  local machine
  for machine in "${machines[@]}"; do
    say "air-gap archive of $machine"
    scripts/airgap.sh -o "$out/trigen-$version-airgap-$machine.tar" "$(wheel_of "$machine")" "$out/core.trigen"
  done
}

sbom() {
  say "bill of materials"
  local bill=$out/trigen-$version.cdx.json
  SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH scripts/sbom.py "$bill" "${machines[@]/#/$portable/}"
  "$venv/bin/python" - "$bill" "$out" "${machines[@]}" <<'PY'
import glob, hashlib, json, sys, zipfile
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
path, out, *machines = sys.argv[1:]
text = open(path).read()
if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
    sys.exit(f"release: {path} is no CycloneDX 1.6: {error}")
bill = json.loads(text)
named = {part["name"] for part in bill["components"]}
for wanted in "LLVM", "SQLite", "zstd", "libsodium", "libc++, libc++abi and libunwind":
    if wanted not in named:
        sys.exit(f"release: {path} does not name {wanted}")
# The wheels hold the very files that the bill was read from.
sums = {part["name"]: part["hashes"][0]["content"] for part in bill["components"] if part["type"] == "file"}
for machine in machines:
    (wheel,) = glob.glob(f"{out}/*_{machine}.whl")
    for member in zipfile.ZipFile(wheel).namelist():
        name = f"{machine}/{member.rsplit('/', 1)[1]}"
        if name in sums and hashlib.sha256(zipfile.ZipFile(wheel).read(member)).hexdigest() != sums.pop(name):
            sys.exit(f"release: {member} of {wheel} is not {name} of the bill; build again")
if sums:
    sys.exit(f"release: no wheel holds {', '.join(sums)}")
PY
}

sums() {
  say "sums and signatures"
  (cd "$out" && rm -f SHA256SUMS* && find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum -- >SHA256SUMS)
  sign "$out/SHA256SUMS"
  [[ -n $key ]] || echo "release: UNSIGNED: no key was given (--key FILE or TRIGEN_RELEASE_KEY); SHA256SUMS and core.trigen carry no signature"
}

check() {
  local machine file
  say "sums and signatures of the files"
  (cd "$out" && sha256sum --quiet -c SHA256SUMS)
  [[ $(cd "$out" && find . -type f ! -name 'SHA256SUMS*' | wc -l) == $(wc -l <"$out/SHA256SUMS") ]] || fail "files in $out are not in SHA256SUMS"
  if [[ -n $key ]]; then
    for file in SHA256SUMS core.trigen; do
      "$host/trigen" cache verify --keys "$key.pub" "$out/$file"
      minisign -V -p "$key.pub" -m "$out/$file"  # a second opinion
    done
  fi
  for machine in "${machines[@]}"; do
    if [[ $machine == "$(uname -m)" ]]; then
      say "packages and images of $machine, installed and used"
      DIST=$out PUBLIC_KEY=${key:+$key.pub} scripts/test_packages.sh "$portable/$machine"
      say "a newcomer's machine: README and the tutorials, typed against these files"
      scripts/test_newcomer.sh "$out"
      say "where glibc is old"
      scripts/test_old_glibc.sh "$(wheel_of "$machine")"
    else
      say "$machine under qemu-user"
      TESTS=${TESTS:-} scripts/test_foreign.sh "$machine" "$out"
    fi
  done
}

steps=("$@")
[[ $# -gt 0 ]] || steps=("${all[@]}")
for step in "${steps[@]}"; do
  case $step in source) source_archive ;; *) "$step" ;; esac
done
say "done: $out"
(cd "$out" && find . -type f -printf '%10s %P\n' | sort -k2)
[[ -n $key ]] || echo "this release is UNSIGNED"
