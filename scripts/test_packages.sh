#!/usr/bin/env bash
# Makes what users install (Debian packages, the wheel, images, the air-gap archive) of a build, and uses it: programs link and run with
# the packages alone, images run plans as any uid on a read-only root without NVRTC, the manifests fit their schemas. On the emulated
# device; two to three minutes. What needs root, buildah, mmdebstrap or PyPI and does not find it says [SKIP].
# Usage: scripts/test_packages.sh [BUILD_DIR]      (default: build; its targets are there and were configured with -DTRIGEN_PACKAGES=ON)
#        DIST=dist/0.1.0  takes a release's packages, wheel, core.trigen and air-gap archive in place of making them;
#        PUBLIC_KEY=FILE  its public key, where it is signed
#        AIRGAP=0  leaves the air-gap archive out
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
[[ -e $build/CPackConfig.cmake ]] || { echo "test_packages: no $build/CPackConfig.cmake; configure with -DTRIGEN_PACKAGES=ON" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TRIGEN_IMAGES=$work/images TRIGEN_LOG=
unset TRIGEN_CACHE TRIGEN_DRIVER TRIGEN_LIBRARY TRIGEN_PROGRAM TRIGEN_NO_JIT
nvrtc=$PWD/build/nvrtc
since=$SECONDS
say() { printf '%4d s  %s\n' $((SECONDS - since)) "$*"; }
fail() { printf 'test_packages: %s\n' "$*" >&2; exit 1; }
bytes() { stat -c %s "$1"; }
# must_fail <text> <command>...: it fails, and says the text.
must_fail() {
  local text=$1 output
  shift
  if output=$("$@" 2>&1); then fail "succeeded: $*: $output"; fi
  grep -qF "$text" <<<"$output" || fail "'$text' is not in: $output"
}

say "manifests"
scripts/check_manifests.sh "$work/manifests"

say "Debian packages"
dist=$work/dist
mkdir "$dist"
if [[ -n ${DIST:-} ]]; then
  cp "$DIST"/*_"$(dpkg --print-architecture)".deb "$dist/"
else
  (cd "$build" && cpack --config CPackConfig.cmake -B "$work/cpack" >"$work/cpack.log") || { cat "$work/cpack.log"; exit 1; }
  mv "$work"/cpack/*.deb "$dist/"
fi
root=$work/root
for package in libtrigen0.1 libtrigen-dev trigen; do
  deb=$(echo "$dist/${package}"_*.deb)
  [[ $(dpkg-deb -f "$deb" Package) == "$package" && -n $(dpkg-deb -f "$deb" Version) ]] || fail "$deb: $(dpkg-deb -f "$deb")"
  dpkg-deb -x "$deb" "$root"
  [[ -s $root/usr/share/doc/$package/copyright && -s $root/usr/share/doc/$package/THIRD_PARTY_NOTICES ]] || fail "$deb has no licence"
done
strip --strip-unneeded -o "$work/stripped.so" "$root/usr/lib/libtrigen.so.0.1"
(($(bytes "$work/stripped.so") <= 6100000)) || fail "libtrigen.so has $(bytes "$work/stripped.so") bytes; allowed: 6.1 MB"
"$root/usr/bin/trigen" version >/dev/null
cmake -S examples -B "$work/examples" -DCMAKE_PREFIX_PATH="$root/usr" >"$work/examples.log" 2>&1 || { cat "$work/examples.log"; exit 1; }
cmake --build "$work/examples" --target example_forward >>"$work/examples.log" 2>&1 || { cat "$work/examples.log"; exit 1; }

bundle=$work/core.trigen
if [[ -n ${DIST:-} ]]; then
  cp "$DIST"/core.trigen* "$work/"
else
  say "a bundle: the core list and the examples' problem, for three targets"
  for arch in sm_70 sm_80 sm_90a; do
    TRIGEN_CACHE=$work/cache.db TRIGEN_NVRTC=$nvrtc "$root/usr/bin/trigen" tune --list core --problems containers/problems.txt --arch $arch \
      --candidates 1 >"$work/tune.log" 2>&1 || { cat "$work/tune.log"; exit 1; }
  done
  TRIGEN_CACHE=$work/cache.db "$root/usr/bin/trigen" cache export "$bundle" >/dev/null
fi
# Signed: every step below that reads the bundle asks for the signature.
for key in team other; do "$root/usr/bin/trigen" cache keygen --key "$work/$key.key" >/dev/null; done
archived=
if [[ -e $bundle.minisig ]]; then
  cp "${PUBLIC_KEY:?a signed release needs its public key}" "$work/team.key.pub"
else
  "$root/usr/bin/trigen" cache sign --key "$work/team.key" "$bundle" >/dev/null
  [[ -z ${DIST:-} ]] || archived=TRIGEN_LOG=  # an unsigned release's archive: nothing to ask for
fi
trusted=TRIGEN_TRUSTED_KEYS=$(tail -n 1 "$work/team.key.pub") stranger=TRIGEN_TRUSTED_KEYS=$(tail -n 1 "$work/other.key.pub")

say "the installed library on the emulated device, without NVRTC"
device=$root/usr/lib/libtrigen_emulator.so
run=(env -i HOME=/nowhere TRIGEN_NO_JIT=1 TRIGEN_NVRTC=/nowhere "TRIGEN_DRIVER=$device" "LD_LIBRARY_PATH=$root/usr/lib")
"${run[@]}" "$trusted" "TRIGEN_CACHE=$bundle" "$work/examples/forward" >/dev/null
must_fail TRIGEN_NO_JIT "${run[@]}" "$work/examples/forward"

say "the wheel"
if [[ -z ${DIST:-} ]]; then
  scripts/build_wheel.sh "$build" "$dist" >/dev/null
else
  cp "$DIST"/trigen-*_"$(uname -m)".whl "$dist/"
fi
wheel=$(echo "$dist"/trigen-*.whl)
if [[ ${AIRGAP:-1} != 0 ]]; then
  say "the air-gap archive, into an environment without a network"
  archive=$work/airgap.tar
  if [[ -n ${DIST:-} ]]; then archive=$(echo "$DIST"/*-airgap-"$(uname -m)".tar); else scripts/airgap.sh -o "$archive" "$wheel" "$bundle" >/dev/null; fi
  tar -xf "$archive" -C "$work"
  (cd "$work/trigen-airgap" && sha256sum --quiet -c SHA256SUMS)
  python3 -m venv "$work/venv"
  printf x >>"$work/trigen-airgap/core.trigen"
  must_fail "not those of SHA256SUMS" "$work/trigen-airgap/install.sh" "$work/venv/bin/python"
  truncate -s -1 "$work/trigen-airgap/core.trigen"
  (cd "$work" && trigen-airgap/install.sh venv/bin/python) >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
  in_venv=(env -i HOME=/nowhere PATH=/usr/bin:/bin "$work/venv/bin/python")
  emulator=$("${in_venv[@]}" -c 'import os, trigen; print(os.path.dirname(trigen.__file__) + "/lib/libtrigen_emulator.so")')
  # The bundle in the environment's share/trigen answers; what it lacks the archive's NVRTC compiles.
  "${in_venv[@]:0:3}" TRIGEN_NO_JIT=1 "${archived:-$trusted}" "TRIGEN_DRIVER=$emulator" "$work/venv/bin/python" examples/python/forward.py >/dev/null
  "${in_venv[@]}" -m trigen verify --device emulated:sm_70 forward,dtype=f16,B=1,T=40,D=16 >/dev/null
fi

say "a Slurm array's tasks, one after the other"
printf '# a list\n%s\n' forward,dtype=f16,B=1,T={16,24,40},D=16 >"$work/problems.txt"
for task in 3 4; do
  PATH=$root/usr/bin:$PATH TRIGEN_NVRTC=$nvrtc TRIGEN_DRIVER=emulated:sm_70 LD_LIBRARY_PATH=$root/usr/lib XDG_CACHE_HOME=$work/home PROBLEMS=$work/problems.txt \
    FLEET=$work/fleet TUNE_OPTIONS="--candidates 1" SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=3 \
    bash examples/fleet/slurm/tune.sbatch >"$work/slurm.log" 2>&1 || { cat "$work/slurm.log"; exit 1; }
done
"$root/usr/bin/trigen" cache merge "$work/fleet" -o "$work/merged.trigen" | grep -q '3 records.* of 2 files' || fail "the tasks' shards do not merge"

for tool in buildah mmdebstrap skopeo unshare; do command -v $tool >/dev/null || missing=${missing:-}" $tool"; done
[[ $(id -u) == 0 ]] || missing=${missing:-}" root"
unshare -m true 2>/dev/null || missing=${missing:-}" mount-namespaces"
if [[ -n ${missing:-} ]]; then
  say "[SKIP] images: no$missing here"
  exit 0
fi

say "the cache as an image"
image() { scripts/image.sh "$@"; }
image cache -o "$work/cache.oci" "$bundle" >"$work/first"
image cache -o "$work/again.oci" "$bundle" "$bundle.minisig" >"$work/second"
diff <(sed 's/ in .*//' "$work/first") <(sed 's/ in .*//' "$work/second") || fail "the same bundle gave two images"
must_fail "no bundle" image cache "$work/dist/"*.whl
skopeo inspect "oci-archive:$work/cache.oci" >"$work/inspect.json"
python3 - "$work/inspect.json" "$bundle" <<'PY'
import hashlib, json, sys
image = json.load(open(sys.argv[1]))
labels, digest = image["Labels"], "sha256:" + hashlib.sha256(open(sys.argv[2], "rb").read()).hexdigest()
assert len(image["Layers"]) == 1, image["Layers"]
assert {"sm_70", "sm_80", "sm_90a"} <= set(labels["trigen.arch"].split(",")) and labels["trigen.digest"] == digest, labels
assert int(labels["trigen.problems"]) >= 16 and labels["trigen.compiler"].startswith("nvrtc "), labels
PY

say "a slim base"
image base python3 python3-pip >/dev/null
cp "$work/examples/forward" examples/python/forward.py "$dist/"
cp "$bundle" "$bundle.minisig" "$dist/"
buildah() { command buildah --root "$TRIGEN_IMAGES/root" --runroot "$TRIGEN_IMAGES/run" --storage-driver vfs "$@"; }
declare -A roots
# make_root <image>: its files' folder becomes roots[image], one for all that is done with it, since each is a copy of all its files.
make_root() { [[ -n ${roots[$1]:-} ]] || roots[$1]=$(buildah mount "$(buildah from "$1")"); }
size_of() { du -sb --exclude=proc --exclude=dev "$1" | cut -f1; }
make_root trigen-base
base_size=$(size_of "${roots[trigen-base]}")

# used <image> <variable=value>... -- <command>...: runs it as uid 12345 on the image's root, read-only, with its environment. The image's
# root is made before (make_root).
used() {
  local image=$1 variables=()
  shift
  while read -r variable; do variables+=("$variable"); done < <(buildah inspect --format '{{range .OCIv1.Config.Env}}{{println .}}{{end}}' "$image" | grep .)
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  unshare -m bash -c 'set -e; root=$1; shift
    mount --bind "$root" "$root"; mount --bind /proc "$root/proc"; mount --bind /dev "$root/dev"; mount -o remount,ro,bind "$root"
    ! touch "$root/usr/written" 2>/dev/null
    exec chroot --userspec=12345:12345 "$root" env -i "$@"' - "${roots[$image]}" "${variables[@]}" "$@"
}
for target in c python; do
  say "the $target application's image"
  image build -t "trigen-$target" -- --target $target --build-arg BASE=localhost/trigen-base --build-arg PYTHON_BASE=localhost/trigen-base \
    --build-arg CACHE=localhost/trigen-cache -f containers/Dockerfile "$dist" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
  make_root "trigen-$target"
  added=$(($(size_of "${roots[trigen-$target]}") - base_size))
  say "it adds $((added / 1000)) kB to its base, $(($(bytes "$bundle") / 1000)) of them the bundle"
  ((added - $(bytes "$bundle") <= 18000000)) || fail "the $target image adds $added bytes; allowed: 18 MB beside the bundle"
done
say "their programs: uid 12345, read-only root, no compiler"
found=$(used trigen-python -- find / -xdev -name 'libnvrtc*' -o -xdev -name nvcc 2>/dev/null || true)
[[ -z $found ]] || fail "a compiler is in the image: $found"
must_fail "TRIGEN_NO_JIT" used trigen-c "$stranger" TRIGEN_DRIVER=/usr/lib/libtrigen_emulator.so -- forward
used trigen-c "$trusted" TRIGEN_DRIVER=/usr/lib/libtrigen_emulator.so -- forward >"$work/c.log"
emulator=$(used trigen-python -- python3 -c 'import os, trigen; print(os.path.dirname(trigen.__file__) + "/lib/libtrigen_emulator.so")')
for arch in sm_70 sm_80 sm_90a ${DIST:+sm_120a}; do
  used trigen-python "$trusted" "TRIGEN_DRIVER=$emulator" TRIGEN_EMULATED_TARGET=$arch -- python3 /usr/local/bin/forward.py >"$work/python.log"
  grep -q "for $arch on" "$work/python.log" || fail "$(cat "$work/python.log")"
done
cat "$work/c.log" "$work/python.log"
# A kernel that the bundle lacks fails at once and says what would help.
must_fail TRIGEN_NO_JIT used trigen-python -- python3 -c '
from trigen.library import Runtime
Runtime(driver="emulated:sm_70").plan("forward,dtype=f32,B=1,T=9,D=9", 0)'
say "the apptainer definition, as the Dockerfile that spython makes of it"
if [[ -e $work/manifests/trigen.dockerfile ]]; then
  sed -i "s/^HEALTHCHECK \/bin/HEALTHCHECK CMD \/bin/" "$work/manifests/trigen.dockerfile"  # what spython makes of %test lacks the word
  image build -t trigen-def -- -f "$work/manifests/trigen.dockerfile" "$dist" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
  make_root trigen-def
  used trigen-def "$trusted" "TRIGEN_DRIVER=$emulator" -- python3 /opt/forward.py >/dev/null
  used trigen-def -- sh -e /tests.sh >"$work/def.log"
  grep -q core.trigen "$work/def.log" || fail "$(cat "$work/def.log")"
fi
say "all passed"
