#!/usr/bin/env bash
# Fetches and unpacks what a portable build compiles from source (LLVM's Support, SQLite, zstd, libsodium), from the source packages of this
# distribution, whose signatures apt checks, into a folder that -DTRIGEN_SOURCES takes. 150 MB of download, half a minute. Idempotent.
# Needs no root and leaves this machine's apt as it is.
# Usage: scripts/portable_sources.sh [FOLDER]     (default: build-portable/sources)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build-portable/sources}
if grep -q libsodium "$folder/complete" 2>/dev/null; then
  echo "portable_sources: $folder holds $(tr '\n' ' ' <"$folder/complete")"
  exit 0
fi
for tool in apt-get dpkg-source tclsh make; do
  command -v "$tool" >/dev/null || { echo "portable_sources: no $tool here; scripts/setup.sh --release installs it" >&2; exit 1; }
done
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{parts,lists/partial,cache/archives/partial,archives}

# This machine's own package sources, asked for source packages.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/{debian,ubuntu}.sources; do
  [[ -e $file ]] && sed -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$file" >"$work/parts/${file##*/}"
done
[[ ! -e $work/parts/sources.list ]] || mv "$work/parts/sources.list" "$work/parts/main.list"
apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts" -o "Dir::State::Lists=$work/lists"
     -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=)
"${apt[@]}" update
(cd "$work/archives" && "${apt[@]}" source --download-only llvm-toolchain-14 sqlite3 libzstd libsodium)

# Of LLVM a hundredth.
tar -xJf "$work"/archives/llvm-toolchain-14_*.orig.tar.xz -C "$work" --wildcards '*/llvm/lib/Support/*' '*/llvm/include/*' '*/llvm/LICENSE.TXT'
mv "$work"/llvm-toolchain-*/llvm "$folder/llvm"
version=$(cd "$work/archives" && echo llvm-toolchain-14_*.orig.tar.xz)
version=${version#*_}
echo "${version%.orig.tar.xz}" >"$folder/llvm/VERSION"
for package in sqlite3 libzstd libsodium; do
  (cd "$work" && dpkg-source --no-check -x archives/$package*.dsc "$package" >/dev/null)  # with the distribution's patches
done
mv "$work/libzstd" "$folder/zstd"
mv "$work/libsodium" "$folder/sodium"
mkdir "$work/amalgamation" "$folder/sqlite"
(cd "$work/amalgamation" && ../sqlite3/configure --disable-tcl >configure.log && make sqlite3.c >make.log)
cp "$work"/amalgamation/sqlite3.[ch] "$folder/sqlite/"
# Headers alone, out of /usr/include so that nothing else of this machine is seen beside them.
mkdir "$folder/include"
cp -r /usr/include/CLI /usr/include/nlohmann "$folder/include/"
(cd "$work/archives" && ls ./*.dsc | sed 's|^./||; s|\.dsc$||') >"$folder/complete"
echo "portable_sources: $folder holds $(tr '\n' ' ' <"$folder/complete")"
