"""pip's way to build trigen from source (PEP 517): the wheel by scripts/build_wheel.sh, the source archive from git's HEAD."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    environment = {**os.environ, "PYTHON": sys.executable}
    environment.pop("PYTHONPATH", None)  # pip's isolated environment, which has no pip for the script
    subprocess.run(
        [ROOT / "scripts/build_wheel.sh", ROOT / "build", wheel_directory], check=True, cwd=ROOT, env=environment
    )
    (wheel,) = Path(wheel_directory).glob("trigen-*.whl")
    return wheel.name


def build_sdist(sdist_directory, config_settings=None):
    """The files of git's HEAD with PKG-INFO, which package indexes ask for; the same commit gives the same bytes."""
    from setuptools import build_meta

    directory = Path(sdist_directory).resolve()
    with tempfile.TemporaryDirectory() as work:
        package = shutil.copytree(ROOT / "python", Path(work) / "package")
        for name in ("LICENSE", "THIRD_PARTY_NOTICES"):
            shutil.copy(ROOT / name, package)
        here = os.getcwd()
        os.chdir(package)
        try:
            information = Path(work, build_meta.prepare_metadata_for_build_wheel(work), "METADATA").rename(
                Path(work) / "PKG-INFO"
            )
        finally:
            os.chdir(here)
        version = re.search(r"^Version: (.*)$", information.read_text(), re.M).group(1)
        archive = directory / f"trigen-{version}.tar.gz"
        subprocess.run(
            [
                "git",
                "archive",
                "--format=tar.gz",
                f"--prefix=trigen-{version}/",
                f"--add-file={information}",
                f"--output={archive}",
                "HEAD",
            ],
            check=True,
            cwd=ROOT,
        )
    return archive.name
