#!/usr/bin/env bash
# Builds and checks all that a release has, into dist/<version>: wheels, Debian and conda packages for glibc 2.28 (x86_64 and aarch64), the air-gap
# archive, the source, SHA256SUMS. Every file in there was checked: names and versions, symbols (auditwheel), size, installed and used
# (scripts/test_packages.sh), run where glibc is old, aarch64 under qemu-user. Needs root for the images. Run as a whole for x86_64;
# of aarch64's steps the build and a part of the tests.
# Usage: scripts/release.sh
#        MACHINES="x86_64"   leaves aarch64 out;  GLIBC=2.28 picks the oldest glibc
set -euo pipefail
cd "$(dirname "$0")/.."
machines=${MACHINES:-x86_64 aarch64}
export GLIBC=${GLIBC:-2.28}
say() { printf '\n==> release: %s (%s)\n' "$*" "$(date +%T)"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

say "one version everywhere"
version=$(sed -n 's/^project(trigen VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
python_version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' python/trigen/_version.py)
changes=$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGELOG.md | head -1)
library=libtrigen${version%.*}
[[ $python_version == "$version" ]] || fail "CMakeLists.txt has version $version, python/trigen/_version.py $python_version"
[[ $changes == "$version" ]] || fail "CMakeLists.txt has version $version, CHANGELOG.md begins with $changes"
grep -q "${library}_" containers/Dockerfile || fail "containers/Dockerfile does not install $library"
echo "$version"

say "what the build needs"
scripts/setup.sh --release
out=dist/$version
rm -rf "$out"
mkdir -p "$out"
venv=build-portable/release-venv
[[ -x $venv/bin/auditwheel ]] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet auditwheel==6.4.2 'setuptools>=61' wheel twine; }

for machine in $machines; do
  say "build for $machine"
  scripts/portable.sh "$machine"
  PYTHON=$venv/bin/python scripts/build_wheel.sh "build-portable/$machine" "$out"
  wheel=$(echo "$out"/trigen-"$version"-py3-none-manylinux_2_*_"$machine".whl)
  "$venv/bin/auditwheel" show "$wheel" | tee "$out/auditwheel.txt"
  tr '\n' ' ' <"$out/auditwheel.txt" | grep -qE "consistent with the following platform tag: +\"manylinux_${GLIBC/./_}_$machine\"|manylinux_2_(17|[0-9])_" ||
    fail "auditwheel does not agree with ${wheel##*/}"
  rm "$out/auditwheel.txt"
  "$venv/bin/twine" check --strict "$wheel"
  (cd "build-portable/$machine" && cpack --config CPackConfig.cmake -B cpack >/dev/null && cp cpack/*.deb "../../$out/")
  [[ $(stat -c %s "build-portable/$machine/libtrigen.so.$version") -le 6000000 ]] || fail "libtrigen.so of $machine is larger than 6 MB"
  if [[ $machine == "$(uname -m)" ]]; then
    say "packages and images of $machine, installed and used"
    WHEEL=$wheel scripts/test_packages.sh "build-portable/$machine"
    say "where glibc is old"
    scripts/test_old_glibc.sh "$wheel"
  else
    say "$machine under qemu-user"
    scripts/test_foreign.sh "$machine" "$wheel"
  fi
  say "conda packages of $machine"
  scripts/conda.sh "$out" "$machine"
  scripts/airgap.sh -o "$out/trigen-$version-airgap-$machine.tar" "$wheel"
done
say "source and sums"
git archive --format=tar.gz --prefix="trigen-$version/" -o "$out/trigen-$version.tar.gz" HEAD
(cd "$out" && sha256sum -- *.whl *.deb conda/*/*.conda *.tar *.tar.gz >SHA256SUMS)
ls -l "$out"
