"""torch.hub of folders on this machine: what their hubconf.py offers. Nothing is fetched from the network."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from urllib.parse import urlparse  # noqa: F401 - packages import it from here

from tandem.errors import UnsupportedError, ValueRangeError
from tandem.utils.model_zoo import load_url as load_state_dict_from_url

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the digest in a file's name, as PyTorch writes it
_folder: str | None = None


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", os.path.join("~", ".cache"))
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Where PyTorch keeps what it has fetched."""
    return _folder or os.path.join(_get_torch_home(), "hub")


def set_dir(d) -> None:
    global _folder
    _folder = os.fspath(d)


def _entries(name: str, repo_or_dir, source: str) -> dict:
    if source == "github":
        owner, _, rest = str(repo_or_dir).partition("/")
        kept = os.path.join(get_dir(), f"{owner}_{rest.replace('/', '_').replace(':', '_')}")
        candidates = [kept, f"{kept}_main", f"{kept}_master"]
        repo_or_dir = next((c for c in candidates if os.path.isdir(c)), None)
        if repo_or_dir is None:
            raise UnsupportedError(
                f"hub.{name}", f"{owner}/{rest} is not on this machine, and nothing is fetched from the network",
                fix=f"clone it to {kept}, or give its folder with source='local'",
            )  # fmt: skip
    path = os.path.join(os.fspath(repo_or_dir), "hubconf.py")
    if not os.path.exists(path):
        raise ValueRangeError(f"hub.{name}", f"there is no {path}")
    specification = importlib.util.spec_from_file_location("hubconf", path)
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, os.fspath(repo_or_dir))
    try:
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(os.fspath(repo_or_dir))
    return {n: f for n, f in vars(module).items() if callable(f) and not n.startswith("_")}


def load(repo_or_dir, model: str, *args, source: str = "github", trust_repo=None, force_reload=False, verbose=True,
         skip_validation=False, **kwargs):  # fmt: skip
    """What an entry of a folder's hubconf.py gives. The folder's code imports torch: call tandem.torch.install() before."""
    entries = _entries("load", repo_or_dir, source)
    if model not in entries:
        raise ValueRangeError("hub.load", f"{repo_or_dir} has no entry {model!r}; it has {', '.join(sorted(entries))}")
    return entries[model](*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source: str = "github"):
    """Names of the entries."""
    return sorted(n for n, f in _entries("list", github, source).items() if inspect.isfunction(f))


def help(github, model: str, force_reload=False, skip_validation=False, trust_repo=None, source: str = "github"):
    """The docstring of an entry."""
    return inspect.getdoc(_entries("help", github, source)[model])


def download_url_to_file(url: str, dst: str, hash_prefix=None, progress=True):
    raise UnsupportedError(
        "hub.download_url_to_file", f"nothing is fetched from the network: {url}", fix="fetch it by hand"
    )
