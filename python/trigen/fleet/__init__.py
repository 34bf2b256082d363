"""Tuning by many machines: shards meet in a folder or in any store that fsspec opens (docs/how-to/fleet.md).

`import trigen.fleet` needs nothing else; places with a scheme (s3://, gs://, https://) need fsspec and its package for that scheme, and
`trigen.fleet.ray` needs Ray: `pip install 'trigen[fleet]'`.
"""

from .place import Place
from .work import merge, status, work

__all__ = ["Place", "merge", "status", "work"]
