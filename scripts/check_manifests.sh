#!/usr/bin/env bash
# Checks containers/, packaging/, examples/fleet/ and .github/ as far as no cluster is needed: Kubernetes' manifests against its schemas, that
# actions are pinned, the CDI file's structure, the conda recipe's fields (scripts/conda.sh builds it), the Slurm scripts' syntax, the
# apptainer definition's sections (test_packages.sh runs these two). Tools come from PyPI into build/packaging-venv.
# Usage: scripts/check_manifests.sh [FOLDER]      FOLDER receives the apptainer definition as a Dockerfile
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/manifests}
mkdir -p "$folder"
venv=build/packaging-venv
if ! "$venv/bin/python" -c 'import kubernetes_validate, rattler_build, spython, wheel' 2>/dev/null; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check kubernetes-validate==1.37.0 spython==0.3.14 py-rattler-build==0.73.0 setuptools wheel || {
    echo "[SKIP] manifests: PyPI does not answer"
    exit 0
  }
fi
"$venv/bin/kubernetes-validate" --strict --quiet containers/kubernetes/*.yaml examples/fleet/kubernetes/*.yaml
# A misspelt field must be found, or the check is none.
sed 's/readOnlyRootFilesystem/readOnlyRootFileSystem/' containers/kubernetes/cdi.yaml >"$folder/wrong.yaml"
! "$venv/bin/kubernetes-validate" --strict --quiet "$folder/wrong.yaml" >/dev/null 2>&1 || { echo "check_manifests: a wrong field passed" >&2; exit 1; }
sed 's/backoffLimitPerIndex/backoffLimitPerindex/' examples/fleet/kubernetes/tune.yaml >"$folder/wrong.yaml"
! "$venv/bin/kubernetes-validate" --strict --quiet "$folder/wrong.yaml" >/dev/null 2>&1 || { echo "check_manifests: a wrong field of a job passed" >&2; exit 1; }
# A workflow's actions are commits: a tag can be moved.
! grep -rnE '^ *(- )?uses:' .github/workflows | grep -vE '@[0-9a-f]{40} # v[0-9.]+$' || { echo "check_manifests: an action is not pinned by commit" >&2; exit 1; }
"$venv/bin/python" - <<'PY'
import json, re
spec = json.load(open("containers/cdi/trigen-cache.json"))
assert set(spec) == {"cdiVersion", "kind", "devices"} and re.fullmatch(r"[\w.-]+/[\w-]+", spec["kind"]), spec
for device in spec["devices"]:
    edits = device["containerEdits"]
    assert set(device) == {"name", "containerEdits"} and set(edits) <= {"env", "mounts"}, device
    assert all(set(mount) == {"hostPath", "containerPath", "options"} for mount in edits["mounts"]), edits
    assert all("=" in variable for variable in edits["env"]), edits
PY
TRIGEN_VERSION=0.0.0 TRIGEN_FILES=$folder TRIGEN_GLIBC=2.28 "$venv/bin/python" - <<'PY'
from rattler_build import RattlerBuildError, Stage0Recipe, VariantConfig
text = open("packaging/conda/recipe.yaml").read()
packages = [variant.recipe.package.name for variant in Stage0Recipe.from_yaml(text).render(VariantConfig())]
assert packages == ["libtrigen", "trigen"], packages
try:
    Stage0Recipe.from_yaml(text.replace("binary_relocation", "binary_relocate"))
except RattlerBuildError:
    pass
else:
    raise SystemExit("check_manifests: a wrong field of the conda recipe passed")
PY
for script in examples/fleet/slurm/*; do bash -n "$script"; done
"$venv/bin/spython" recipe --force --parser singularity --writer docker containers/trigen.def "$folder/trigen.dockerfile" >/dev/null
grep -q '^FROM python:3.12-slim' "$folder/trigen.dockerfile" || { cat "$folder/trigen.dockerfile" >&2; exit 1; }
sed -i 's|^FROM python:3.12-slim|FROM localhost/trigen-base|' "$folder/trigen.dockerfile"
