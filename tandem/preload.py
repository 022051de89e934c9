"""In a process that will have to compile, the compiler's library is loaded beside the rest of `import tandem`.

Most of the first compilation is loading it. A directory of kernels tells that compiling is behind us, most likely for good.
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

from tandem import _runtime
from tandem.switches import cache_dir


def preload_compiler() -> None:
    directory = cache_dir()
    if directory and os.path.isdir(os.path.join(directory, "kernels")):
        return
    found = PathFinder.find_spec("llvmlite")
    for folder in (found and found.submodule_search_locations) or ():
        path = os.path.join(folder, "binding", "libllvmlite.so")
        if os.path.exists(path):
            _runtime.preload(path)
