#!/usr/bin/env bash
# Fetches and unpacks what a portable build compiles from source (LLVM's Support, SQLite, zstd, libsodium, CLI11, nlohmann-json), from the
# source packages of this distribution, whose signatures apt checks, into a folder that -DTRIGEN_SOURCES takes. 150 MB of download, half a
# minute. The packages' .dsc files, which name each archive's SHA-256, stay in FOLDER/dsc (scripts/sbom.py reads them). Idempotent.
# Needs no root and leaves this machine's apt as it is.
# Usage: scripts/portable_sources.sh [FOLDER]     (default: build-portable/sources)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build-portable/sources}
said() { echo "portable_sources: $folder holds $(cd "$folder/dsc" && echo *.dsc)"; }
if [[ -e $folder/dsc/complete ]]; then
  said
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
(cd "$work/archives" && "${apt[@]}" source --download-only llvm-toolchain-14 sqlite3 libzstd libsodium cli11 nlohmann-json3)

# Of LLVM a hundredth.
tar -xJf "$work"/archives/llvm-toolchain-14_*.orig.tar.xz -C "$work" --wildcards '*/llvm/lib/Support/*' '*/llvm/include/*' '*/llvm/LICENSE.TXT'
mv "$work"/llvm-toolchain-*/llvm "$folder/llvm"
version=$(cd "$work/archives" && echo llvm-toolchain-14_*.orig.tar.xz)
version=${version#*_}
echo "${version%.orig.tar.xz}" >"$folder/llvm/VERSION"
for package in sqlite3 libzstd libsodium cli11 nlohmann-json3; do
  (cd "$work" && dpkg-source --no-check -x archives/$package*.dsc "$package" >/dev/null)  # with the distribution's patches
done
mv "$work/libzstd" "$folder/zstd"
mv "$work/libsodium" "$folder/sodium"
mkdir "$work/amalgamation" "$folder/sqlite"
(cd "$work/amalgamation" && ../sqlite3/configure --disable-tcl >configure.log && make sqlite3.c >make.log)
cp "$work"/amalgamation/sqlite3.[ch] "$folder/sqlite/"
mkdir "$folder/include"
cp -r "$work/cli11/include/CLI" "$work/nlohmann-json3/include/nlohmann" "$folder/include/"
mkdir "$folder/dsc"
cp "$work"/archives/*.dsc "$folder/dsc/"
touch "$folder/dsc/complete"
said
