"""Where shards meet: a folder, or a store that fsspec opens."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any, List, Optional, Set, Union

from ..errors import BadRequest, TrigenError, TrigenWarning

# A shard's name is the SHA-256 of its bytes, so that nothing is ever overwritten and what arrives can be checked.
SHARD = re.compile(r"[0-9a-f]{64}\.trigen")


class Place:
    """A folder (also on NFS), or a URL of fsspec: s3://bucket/fleet, gs://..., abfs://..., https://host/fleet/ (listed by its index page, written
    by PUT). `options` are those of the URL's file system: Place("s3://bucket/fleet", endpoint_url=...).

    Stores are written with whole objects that are never changed: no lock and no server of trigen's."""

    def __init__(self, url: Union[str, os.PathLike[str]], **options: Any) -> None:
        self.url = os.fspath(url)
        self.options = options
        self.folder: Optional[Path] = None  # of a place that is one
        if "://" not in self.url:
            self.folder = Path(self.url)
            return
        try:
            import fsspec
        except ImportError:
            raise BadRequest(f"the place {self.url} needs fsspec, which is not installed; install trigen[fleet], or name a folder") from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url, **options)
        except (ImportError, ValueError) as error:
            raise BadRequest(f"fsspec does not open the place {self.url}: {error}; allowed are a folder and the schemes that fsspec has packages of") from None
        self._root = self._root.rstrip("/")
        self._put_options = {"method": "put"} if self.url.startswith(("http://", "https://")) else {}

    def __repr__(self) -> str:
        return f"<trigen.fleet.Place {self.url}>"

    def names(self) -> Set[str]:
        """The shards that are there now."""
        if self.folder is not None:
            found = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        else:
            self._files.invalidate_cache()
            try:
                # An HTTP server lists a folder under its name with the slash alone.
                found = self._files.ls(self._root + "/" if self._put_options else self._root, detail=False)
            except FileNotFoundError:  # object stores have no empty folders
                found = []
        return {name for name in (str(path).rstrip("/").rsplit("/", 1)[-1] for path in found) if SHARD.fullmatch(name)}

    def pull(self, folder: Union[str, os.PathLike[str]]) -> List[str]:
        """Brings the shards that the folder lacks; their names. One that is not what its name says is left out with a warning."""
        folder = Path(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        brought = []
        for name in sorted(self.names() - {path.name for path in folder.iterdir()}):
            data = (self.folder / name).read_bytes() if self.folder is not None else self._files.cat_file(f"{self._root}/{name}")
            if hashlib.sha256(data).hexdigest() != name.split(".")[0]:
                warnings.warn(f"{self.url}: {name} has other bytes than its name says (still being written, or damaged); left out", TrigenWarning, stacklevel=2)
                continue
            _write_whole(folder / name, data)
            brought.append(name)
        return brought

    def push(self, folder: Union[str, os.PathLike[str]]) -> List[str]:
        """Leaves the folder's shards that the place lacks; their names."""
        mine = {path.name: path for path in Path(folder).iterdir() if SHARD.fullmatch(path.name)}
        left = []
        for name in sorted(set(mine) - self.names()):
            if self.folder is not None:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write_whole(self.folder / name, mine[name].read_bytes())
            else:
                try:
                    self._files.put_file(str(mine[name]), f"{self._root}/{name}", **self._put_options)
                except Exception as error:  # every store has errors of its own
                    raise TrigenError(f"{self.url} does not take {name}: {error}; the shard stays in {folder}") from error
            left.append(name)
        return left


def _write_whole(path: Path, data: bytes) -> None:
    """Under another name, then renamed: nobody sees half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
