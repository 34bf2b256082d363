#!/usr/bin/env bash
# Builds the wheel into dist/: the Python package with libtrigen.so, the emulated device and the trigen program inside.
# Measures the platform tag from the binaries' glibc symbols, and refuses a binary that needs more than glibc.
# Usage: scripts/build_wheel.sh [BUILD_DIR [DIST_DIR]]     (default: build and dist; what quickstart.sh builds is built when it is missing)
#        PYTHON=...    picks the interpreter; where it has no setuptools or no wheel, PyPI's in an environment of this run pack the wheel
#        GLIBC=2.28    refuses binaries that need a later one (scripts/portable.sh makes such binaries)
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
dist=${2:-dist}
python=${PYTHON:-python3}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# Before the minutes of compiling. The environment is this run's own: two runs on one BUILD_DIR may pack at the same time.
if ! "$python" -c 'import pip, setuptools, wheel, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 61)' 2>/dev/null; then
  venv=$stage/venv
  # ensurepip by itself: venv keeps what it says to itself.
  { "$python" -m venv --without-pip "$venv" && "$venv/bin/python" -Im ensurepip --default-pip &&
    "$venv/bin/python" -m pip install --quiet --only-binary :all: --require-hashes -r scripts/pins/wheel.txt; } >"$stage/log" 2>&1 || {
    cat "$stage/log" >&2
    echo "build_wheel: $python has no pip, setuptools (61 or later) and wheel, and no environment could be made with them;" \
      "apt install python3-venv, or name another interpreter in PYTHON" >&2
    exit 1
  }
  python=$venv/bin/python
fi
if [[ ! -e $build/libtrigen.so || ! -e $build/libtrigen_emulator.so || ! -e $build/trigen ]]; then
  targets=(--target libtrigen.so trigen_emulator trigen_program)  # the file: with Ninja, `trigen` is the program
  if [[ ! -e $build/CMakeCache.txt ]]; then
    launcher=$(command -v ccache || true)
    cmake --preset install -B "$build" ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher}
    targets=()  # what `cmake --install` installs, too
  fi
  cmake --build "$build" ${targets[@]+"${targets[@]}"}
fi

cp -r python "$stage/package"
cp LICENSE THIRD_PARTY_NOTICES "$stage/package/"
find "$stage/package" -name __pycache__ -type d -prune -exec rm -rf {} +
rm -rf "$stage"/package/{build,*.egg-info}
binaries=()
for file in lib/libtrigen.so lib/libtrigen_emulator.so bin/trigen; do
  install -D -m 755 "$build/${file##*/}" "$stage/package/trigen/$file"
  binaries+=("$stage/package/trigen/$file")
done
machine=$(readelf -h "${binaries[0]}" | awk -F: '/Machine/ {print $2}')
case $machine in
  *X86-64*) machine=x86_64 ;;
  *AArch64*) machine=aarch64 ;;
  *) echo "build_wheel: ${binaries[0]} is for$machine; allowed: x86-64 and AArch64" >&2; exit 1 ;;
esac
# A binary that was stripped where it was linked stays as it is, byte for byte (scripts/sbom.py's hashes; another machine's strip is not asked).
for binary in "${binaries[@]}"; do
  ! readelf -SW "$binary" | grep ' \.symtab ' >/dev/null || strip --strip-unneeded "$binary"
done

newest=2.17
for binary in "${binaries[@]}"; do
  foreign=$(readelf -dW "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64)\.so' || true)
  if [[ -n $foreign ]]; then
    echo "build_wheel: ${binary##*/} needs ${foreign//$'\n'/ }; allowed: glibc's own libraries; link them statically" >&2
    exit 1
  fi
  needed=$(readelf -VW "$binary" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2 | sort -V | tail -1)
  newest=$(printf '%s\n%s\n' "$newest" "$needed" | sort -V | tail -1)
  if [[ -n ${GLIBC:-} && $(printf '%s\n%s\n' "$GLIBC" "$needed" | sort -V | tail -1) != "$GLIBC" ]]; then
    echo "build_wheel: ${binary##*/} needs glibc $needed; allowed: $GLIBC; build it with scripts/portable.sh" >&2
    exit 1
  fi
  case ${binary##*/} in
    libtrigen.so) allowed='^trigen_' ;;
    libtrigen_emulator.so) allowed='^(cu|trigen_emulator_)' ;;
    *) continue ;;
  esac
  exported=$(readelf --dyn-syms -W "$binary" | awk '$7 != "UND" && $5 != "LOCAL" && NR > 3 {print $8}' | grep -vE "$allowed" | grep . || true)
  if [[ -n $exported ]]; then
    echo "build_wheel: ${binary##*/} exports ${exported//$'\n'/ }; allowed: $allowed" >&2
    exit 1
  fi
done
# A tag older than the asked one says more than was tried.
[[ -z ${GLIBC:-} ]] || newest=$GLIBC

export TRIGEN_WHEEL_PLATFORM="manylinux_${newest//./_}_$machine"
mkdir -p "$dist"
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$dist" "$stage/package"
ls -l "$dist"/trigen-*-"$TRIGEN_WHEEL_PLATFORM".whl
