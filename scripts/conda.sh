#!/usr/bin/env bash
# Makes conda packages of a release's files, into DIST/conda, a channel: libtrigen for one kind of machine, and trigen (the Python package)
# for all. The library is the Debian packages', which links nothing but glibc. Runs the packages' own tests (packaging/conda/recipe.yaml), on
# the emulated device, in an environment that conda's resolver makes, where this machine can run them. conda-forge is not asked: that
# environment's python is this machine's interpreter, its cuda-nvrtc PyPI's wheel in conda's layout. Needs PyPI.
# Usage: scripts/conda.sh DIST [x86_64|aarch64]     DIST holds the Debian packages and the wheel (default: this machine's kind)
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -gt 0 && -d $1 ]] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
dist=$(cd "$1" && pwd)
machine=${2:-$(uname -m)}
case $machine in
  x86_64) debian=amd64 conda=linux-64 ;;
  aarch64) debian=arm64 conda=linux-aarch64 ;;
  *) echo "conda: found '$machine'; allowed are x86_64 and aarch64" >&2; exit 2 ;;
esac
version=$(sed -n 's/^project(trigen VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
venv=build-portable/conda-venv
if ! "$venv/bin/python" -c 'import rattler_build' 2>/dev/null; then
  rm -rf "$venv"
  mkdir -p "${venv%/*}"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check py-rattler-build==0.73.0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$work/files
mkdir -p "$files/site"
for package in "libtrigen${version%.*}" libtrigen-dev trigen; do
  dpkg-deb -x "$(echo "$dist/${package}_${version}"-*_$debian.deb)" "$files/root"
done
wheel=$(echo "$dist/trigen-$version"-py3-none-*_"$machine".whl)
python3 -m zipfile -e "$wheel" "$files/site"
glibc=${wheel##*manylinux_2_}
rm -r "$files"/site/trigen/{lib,bin} "$files"/site/*.dist-info/RECORD
cp LICENSE THIRD_PARTY_NOTICES examples/python/forward.py "$files/"

export TRIGEN_VERSION=$version TRIGEN_FILES=$files TRIGEN_GLIBC=2.${glibc%%_*} RATTLER_CACHE_DIR=$work/cache
"$venv/bin/python" - "$dist/conda" "$work/channel" "$conda" "$PWD/build/nvrtc" <<'PY'
import os, platform, sys
from pathlib import Path
from rattler_build import Package, PlatformConfig, RenderConfig, Stage0Recipe, ToolConfiguration, VariantConfig

channel, helpers, target, nvrtc = sys.argv[1:]
native = target == {"x86_64": "linux-64", "aarch64": "linux-aarch64"}.get(platform.machine())
Path(channel).mkdir(parents=True, exist_ok=True)
recipe = Stage0Recipe.from_file("packaging/conda/recipe.yaml")
built = []
for variant in recipe.render(VariantConfig(), RenderConfig(platform=PlatformConfig(target_platform=target, build_platform=target if native else None))):
    if variant.recipe.package.name == "trigen" and not native:
        continue  # made where it can be tried
    built += variant.run_build(ToolConfiguration(test_strategy="skip"), output_dir=channel, channels=[]).packages
print("conda:", *built, sep="\n  ")
if not native:
    sys.exit()

# Needs of the tests beside these: the interpreter as in a virtual environment, NVRTC where conda's package has it.
python = os.path.realpath(sys._base_executable)
for name, version, script in [
    ("python", platform.python_version(), f"""
mkdir -p "$PREFIX/bin"
ln -s {python} "$PREFIX/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
ln -s {python} "$PREFIX/bin/python"
echo "home = {os.path.dirname(python)}" > "$PREFIX/pyvenv.cfg"
"""),
    ("cuda-nvrtc", "12.9.86", f'mkdir -p "$PREFIX/lib" && cp -a {nvrtc}/nvidia/cuda_nvrtc/lib/libnvrtc* "$PREFIX/lib/"'),
]:
    helper = Stage0Recipe.from_dict({"package": {"name": name, "version": version},
                                     "build": {"script": script, "dynamic_linking": {"binary_relocation": False}}})
    helper.run_build(output_dir=helpers, channels=[])
for path in built:
    for test in Package.from_file(path).run_tests(channel=[channel, helpers]):
        print(f"conda: test {test.test_index} of {Path(path).name}: {'passed' if test.success else 'failed'}")
        if not test.success:
            sys.exit("\n".join(test.output))
PY
rm -rf "$dist"/conda/{bld,src_cache,rattler-build-log.txt,.tmp,.condapackageignore}
