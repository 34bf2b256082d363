"""The place where shards meet: a folder, or a store that fsspec opens."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any, BinaryIO, List, Optional, Set, Union

from ..errors import BadRequest, TrigenError, TrigenWarning

# A shard's name is the SHA-256 of its bytes, so that nothing is ever overwritten and what arrives can be checked. A signed one has its signature
# beside it, which goes ahead of it wherever it goes: nobody sees the shard alone.
SHARD = re.compile(r"[0-9a-f]{64}\.trigen")
SIGNATURE = ".minisig"
_MOST_BYTES = 1 << 30  # of a file, as of one that `trigen` reads signed


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
            raise BadRequest(
                f"the place {self.url} needs fsspec, which is not installed; install trigen[fleet], or name a folder"
            ) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url, **options)
        except (ImportError, ValueError) as error:
            raise BadRequest(
                f"fsspec does not open the place {self.url}: {error}; allowed are a folder and the schemes that fsspec has packages of"
            ) from None
        self._root = self._root.rstrip("/")
        self._web = self.url.startswith(("http://", "https://"))

    def __repr__(self) -> str:
        return f"<trigen.fleet.Place {self.url}>"

    def names(self) -> Set[str]:
        """The shards that are there now."""
        return {name for name in self._files_there() if SHARD.fullmatch(name)}

    def pull(self, folder: Union[str, os.PathLike[str]]) -> List[str]:
        """Brings the shards that the folder lacks, and their signatures; the shards' names. One that is not what its name says is left out with
        a warning."""
        folder = Path(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there, mine = self._files_there(), {path.name for path in folder.iterdir()}
        brought = []
        for shard in sorted(filter(SHARD.fullmatch, there)):
            for name in (shard + SIGNATURE, shard):
                if name not in there or name in mine:
                    continue
                with self._opened(name) as source:
                    problem = _write_whole(folder / name, source, "" if name != shard else shard.split(".")[0])
                if problem:
                    warnings.warn(f"{self.url}: {name} {problem}; left out", TrigenWarning, stacklevel=2)
                elif name == shard:
                    brought.append(name)
        return brought

    def push(self, folder: Union[str, os.PathLike[str]]) -> List[str]:
        """Leaves the folder's shards that the place lacks, and their signatures; the shards' names."""
        mine, there = {path.name: path for path in Path(folder).iterdir() if path.is_file()}, self._files_there()
        left = []
        for shard in sorted(filter(SHARD.fullmatch, mine)):
            for name in (shard + SIGNATURE, shard):
                if name not in mine or name in there:
                    continue
                self._leave(name, mine[name])
                if name == shard:
                    left.append(name)
        return left

    def _files_there(self) -> Set[str]:
        if self.folder is not None:
            return {path.name for path in self.folder.iterdir() if path.is_file()} if self.folder.is_dir() else set()
        self._files.invalidate_cache()
        try:
            # An HTTP server lists a folder under its name with the slash alone.
            found = self._files.ls(self._root + "/" if self._web else self._root, detail=False)
        except FileNotFoundError:  # object stores have no empty folders
            found = []
        return {str(path).rstrip("/").rsplit("/", 1)[-1] for path in found}

    def _opened(self, name: str) -> Any:
        if self.folder is not None:
            return open(self.folder / name, "rb")
        return self._files.open(
            f"{self._root}/{name}", "rb", **({"block_size": 0} if self._web else {})
        )  # 0: one stream, as not every server knows ranges

    def _leave(self, name: str, path: Path) -> None:
        if self.folder is not None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "rb") as source:
                problem = _write_whole(self.folder / name, source)
            if problem:
                raise TrigenError(f"{path} {problem}; it stays where it is")
            return
        try:
            self._files.put_file(str(path), f"{self._root}/{name}", **({"method": "put"} if self._web else {}))
        except Exception as error:  # every store has errors of its own
            raise TrigenError(f"{self.url} does not take {name}: {error}; the shard stays in {path.parent}") from error


def _write_whole(path: Path, source: BinaryIO, sha256: str = "") -> str:
    """Under another name, then renamed: nobody sees half of it. "" or why it was not: it has no end, or other bytes than it should."""
    hashed, size, problem = hashlib.sha256(), 0, ""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        try:
            while data := source.read(1 << 20):
                size += len(data)
                if size > _MOST_BYTES:
                    problem = "has more than 1 GiB, the most that is read"
                    break
                hashed.update(data)
                file.write(data)
            if not problem and sha256 not in ("", hashed.hexdigest()):
                problem = "has other bytes than its name says (still being written, or damaged)"
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            if problem:
                os.unlink(file.name)
            else:
                os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return problem
