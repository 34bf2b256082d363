#!/usr/bin/env bash
# Container images, made without a daemon by buildah, as OCI archives that `podman load`, `skopeo copy` and registries take:
#   scripts/image.sh cache [-o ARCHIVE] BUNDLE...     one layer FROM scratch that holds the bundles at its root, labelled with what they
#                                                     hold: an image volume for Kubernetes, `COPY --from` for Dockerfiles. -a arm64: for
#                                                     nodes of that kind (the bytes are the GPU's, but nodes pull their own kind alone).
#                                                     A bundle's signature, BUNDLE.minisig, goes where the bundle goes
#   scripts/image.sh build [-o ARCHIVE] -- [buildah build's options]   an application with it: containers/Dockerfile, or what -f names
#   scripts/image.sh base [-o ARCHIVE] [PACKAGE...]   a slim Debian from this machine's package sources, where no registry is at hand
# Images stay in the store of TRIGEN_IMAGES (build/images), by the names trigen-cache, trigen-app and trigen-base, and other tags with -t.
# The same bundles give the same bytes. Needs buildah; root or user namespaces; for `base` mmdebstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(trigen VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
store=${TRIGEN_IMAGES:-build/images}
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }
fail() { echo "image: $*" >&2; exit 1; }
[[ $# -gt 0 ]] || usage
what=$1
shift
archive= tag=trigen-$what arch=
[[ $what != build ]] || tag=trigen-app
while getopts o:t:a: option; do
  case $option in
    o) archive=$OPTARG ;;
    t) tag=$OPTARG ;;
    a) arch=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))

mkdir -p "$store"
store=$(cd "$store" && pwd)
buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver vfs "$@"; }
publish() {
  [[ -z $archive ]] || { rm -f "$archive"; buildah push --quiet "$tag" "oci-archive:$archive:$tag"; }
  echo "image: $tag $(buildah inspect --type image --format '{{.FromImageDigest}}' "$tag")${archive:+ in $archive}"
}

# One line of "key=value" for each label of the bundles in $@: SQLite files, whose tables docs/cache-format.md describes.
labels() {
  python3 - "$@" <<'PY'
import hashlib, sqlite3, sys, urllib.parse
archs, problems, compilers, devices, digests, records = set(), set(), set(), set(), [], 0
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        digests.append("sha256:" + hashlib.sha256(file.read()).hexdigest())
    bundle = sqlite3.connect(f"file:{urllib.parse.quote(path)}?mode=ro&immutable=1", uri=True)
    for problem, arch, device in bundle.execute("SELECT problem, arch, device FROM records"):
        records += 1
        archs.add(arch), problems.add(problem), devices.add(device or "predicted")
    compilers |= {row[0] for row in bundle.execute("SELECT DISTINCT compiler FROM binaries")}
if not records:
    sys.exit("image: no record in " + " ".join(sys.argv[1:]) + "; `trigen cache export` makes bundles")
for key, value in {"arch": sorted(archs), "problems": [str(len(problems))], "records": [str(records)], "devices": sorted(devices),
                   "compiler": sorted(compilers), "digest": digests}.items():
    print(f"trigen.{key}=" + ",".join(value))
PY
}

case $what in
  cache)
    bundles=() files=()
    for file in "$@"; do
      [[ -f $file ]] || fail "$file is no file; \`trigen cache export\` makes bundles"
      if [[ $file == *.minisig ]]; then
        [[ " $* " == *" ${file%.minisig} "* ]] || fail "$file is a signature; name its bundle, ${file%.minisig}, which it goes with"
        continue
      fi
      [[ $(head -c 15 "$file") == "SQLite format 3" ]] || fail "$file is no bundle; \`trigen cache export\` makes bundles"
      bundles+=("$file") files+=("$file")
      [[ ! -e $file.minisig ]] || files+=("$file.minisig")
    done
    found=$(labels "${bundles[@]}")
    options=()
    while read -r label; do options+=(--label "$label"); done <<<"$found"
    container=$(buildah from scratch)
    trap 'buildah rm "$container" >/dev/null' EXIT
    buildah copy --quiet --chown 0:0 --chmod 0444 "$container" "${files[@]}" / >/dev/null
    buildah config ${arch:+--arch "$arch"} "${options[@]}" --label org.opencontainers.image.title="trigen cache" --label org.opencontainers.image.version="$version" \
      --label org.opencontainers.image.licenses=Apache-2.0 "$container"
    buildah commit --quiet --timestamp 0 --format oci "$container" "$tag" >/dev/null
    publish
    ;;
  base)
    command -v mmdebstrap >/dev/null || fail "no mmdebstrap here; scripts/setup.sh --dev installs it"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    packages=$(IFS=,; echo "$*")
    sources=$(grep -hvE '^(#|$)' /etc/apt/sources.list 2>/dev/null || true)
    for file in /etc/apt/sources.list.d/{debian,ubuntu}.sources; do [[ ! -e $file ]] || sources+=$'\n'$(cat "$file"); done
    mmdebstrap --quiet --variant=minbase ${packages:+--include="$packages"} --dpkgopt='path-exclude=/usr/share/man/*' \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
      "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root/base.tar" - <<<"$sources"
    container=$(buildah from scratch)
    trap 'buildah rm "$container" >/dev/null; rm -rf "$root"' EXIT
    buildah add --quiet "$container" "$root/base.tar" / >/dev/null
    buildah config --cmd /bin/bash "$container"
    buildah commit --quiet --format oci "$container" "$tag" >/dev/null
    publish
    ;;
  build)
    buildah build --quiet --isolation chroot --format oci -t "$tag" ${1+"$@"} >/dev/null
    publish
    ;;
  *) usage ;;
esac
