#!/usr/bin/env bash
# Puts NVIDIA's disassembler into build/nvdisasm, for `trigen-lab timeline` and the clock's tests: a development tool, which no
# user of trigen needs. CUDA 12.8's comes inside the wheel of triton 3.4.0 (155 MB to fetch, of which 6 are kept).
# Usage: scripts/setup_nvdisasm.sh   (then: export TRIGEN_NVDISASM=$PWD/build/nvdisasm/nvdisasm)
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/nvdisasm
if [[ -x $folder/nvdisasm ]]; then
  printf '==> nvdisasm: %s holds it\n' "$folder"
  exit 0
fi
wheel=$(mktemp -d)
trap 'rm -rf "$wheel"' EXIT
python3 -m pip download --quiet --no-deps --disable-pip-version-check --only-binary :all: --python-version 3.12 \
  --dest "$wheel" --require-hashes -r scripts/pins/nvdisasm.txt
mkdir -p "$folder"
python3 - "$wheel"/*.whl "$folder" <<'END'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    text = wheel.read("triton/backends/nvidia/bin/nvdisasm")
path = os.path.join(sys.argv[2], "nvdisasm")
with open(path + ".partial", "wb") as file:
    file.write(text)
os.chmod(path + ".partial", 0o755)
os.replace(path + ".partial", path)
END
"$folder/nvdisasm" --version | sed -n 's/^Cuda/==> nvdisasm: Cuda/p'
