"""Prints where a BLAS-like package of the build environment lies, as KEY=VALUE lines for cmake/blas.cmake."""

import importlib.metadata
import pathlib
import sys


def files(distribution):
    try:
        listed = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    # The oneDNN wheels install outside of site-packages, so the recorded paths climb out of it with "..".
    return [path for f in listed if (path := pathlib.Path(f.locate()).resolve()).is_file()]


def onednn():
    libraries = [f for f in files("onednn-cpu-gomp") if f.name.startswith("libdnnl.so")]
    headers = [f for f in files("onednn-devel-cpu-gomp") if f.parts[-3:] == ("oneapi", "dnnl", "dnnl.h")]
    if not libraries or not headers:  # installed by something that keeps no record
        prefixes = {
            pathlib.Path(sys.prefix),
            *(pathlib.Path(p).parents[2] for p in sys.path if p.endswith("-packages")),
        }
        for prefix in prefixes:
            libraries += prefix.glob("lib/libdnnl.so*")
            headers += prefix.glob("include/oneapi/dnnl/dnnl.h")
    if libraries and headers:
        print(f"LIBRARY={max(libraries, key=lambda f: f.name)}")
        print(f"INCLUDE={headers[0].parents[2]}")
        notices = [f for f in files("onednn-cpu-gomp") if f.name in ("LICENSE", "THIRD-PARTY-PROGRAMS")]
        print("NOTICES=" + ";".join(map(str, notices)))


def openblas():
    found = [f for f in files("scipy-openblas32") if ".so" in f.name or ".dylib" in f.name]
    main = [f for f in found if f.name.startswith("libscipy_openblas")]
    if main:
        print(f"LIBRARY={main[0]}")
        print("OTHERS=" + ";".join(str(f) for f in found if f != main[0]))
        print("NOTICES=" + ";".join(str(f) for f in files("scipy-openblas32") if f.name.startswith("LICENSE")))


{"onednn": onednn, "openblas": openblas}[sys.argv[1]]()
