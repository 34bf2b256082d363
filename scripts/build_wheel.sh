#!/usr/bin/env bash
# Builds the wheel into dist/: the Python package with libtrigen.so (and the trigen program, where it is built) inside.
# Measures the platform tag from the binaries' glibc symbols, and refuses a library that needs more than glibc.
# Usage: scripts/build_wheel.sh [BUILD_DIR [DIST_DIR]]     (default: build and dist; targets are built when they are missing)
#        PYTHON=... picks the interpreter (pip, setuptools and wheel must be there; nothing is downloaded)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
dist=${2:-dist}
python=${PYTHON:-python3}
if [[ ! -e $build/libtrigen.so ]]; then
  [[ -e $build/CMakeCache.txt ]] || cmake -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRIGEN_TESTS=OFF -DTRIGEN_BENCH=OFF
  cmake --build "$build" --target libtrigen.so trigen_program   # the file: with Ninja, `trigen` is the program
fi

"$python" -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 61)' || {
  echo "build_wheel: $python has no setuptools of version 61 or later, which pyproject.toml needs; pip install -U setuptools wheel" >&2
  exit 1
}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r python "$stage/package"
cp LICENSE "$stage/package/"
find "$stage/package" -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf "$stage"/package/{build,*.egg-info}
install -D -m 755 "$build/libtrigen.so" "$stage/package/trigen/lib/libtrigen.so"
binaries=("$stage/package/trigen/lib/libtrigen.so")
if [[ -x $build/trigen ]]; then
  install -D -m 755 "$build/trigen" "$stage/package/trigen/bin/trigen"
  binaries+=("$stage/package/trigen/bin/trigen")
fi
strip --strip-unneeded "${binaries[@]}"

newest=2.17
for binary in "${binaries[@]}"; do
  foreign=$(objdump -p "$binary" | awk '/NEEDED/ {print $2}' |
    grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64)\.so' || true)
  if [[ -n $foreign ]]; then
    echo "build_wheel: ${binary##*/} needs ${foreign//$'\n'/ }; allowed: glibc's own libraries; link them statically" >&2
    exit 1
  fi
  needed=$(objdump -T "$binary" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -V | tail -1)
  newest=$(printf '%s\n%s\n' "$newest" "$needed" | sort -V | tail -1)
done
exported=$(nm -D --defined-only "${binaries[0]}" | awk '{print $3}' | grep -v '^trigen_' || true)
if [[ -n $exported ]]; then
  echo "build_wheel: libtrigen.so exports ${exported//$'\n'/ }; allowed: trigen_*" >&2
  exit 1
fi

export TRIGEN_WHEEL_PLATFORM="manylinux_${newest//./_}_$(uname -m)"
mkdir -p "$dist"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$dist" "$stage/package"
ls -l "$dist"/trigen-*-"$TRIGEN_WHEEL_PLATFORM".whl
