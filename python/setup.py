"""Everything is in pyproject.toml but the wheel's tag: one wheel for every Python 3, bound to a platform by libtrigen.so alone."""

import os

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        # scripts/build_wheel.sh measures the platform from the library's symbols.
        return "py3", "none", os.environ.get("TRIGEN_WHEEL_PLATFORM") or super().get_tag()[2]


class PlatformDistribution(Distribution):
    def has_ext_modules(self):  # libtrigen.so makes it a platform package
        return True


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": PlatformWheel})
