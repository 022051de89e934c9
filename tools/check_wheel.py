"""Check what a wheel holds: metadata, licences, SBOM, guards in its libraries, no paths of the machine that built it.

    python tools/check_wheel.py WHEEL [--levels v2,v3,v4]

Needs pyelftools, which auditwheel brings along.
"""

from __future__ import annotations

import argparse
import email
import io
import json
import pathlib
import sys
import zipfile

from elftools.elf.elffile import ELFFile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ("_runtime", "libtomp")  # the libraries that were compiled here


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--levels", default="")
    options = parser.parse_args()
    with zipfile.ZipFile(options.wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    problems = [
        *check_metadata(options.wheel.name, files), *check_texts(files), *check_paths(files), *check_libraries(files),
        *check_levels(files, options.levels),
    ]  # fmt: skip
    if problems:
        sys.exit("\n".join(f"{options.wheel.name}: {problem}" for problem in problems))
    print(f"check: {options.wheel.name}, {options.wheel.stat().st_size / 1e6:.1f} MB: all well")


def check_metadata(name: str, files: dict[str, bytes]):
    text = next(content for path, content in files.items() if path.endswith(".dist-info/METADATA"))
    metadata = email.message_from_string(text.decode())
    if metadata["Name"] != "tandem-dl" or not name.startswith("tandem_dl-"):
        yield f"it is called {metadata['Name']}"
    if "manylinux" not in name:
        yield "its tag is not that of manylinux"
    if "Apache-2.0" not in (metadata["License-Expression"] or ""):
        yield f"its licence is {metadata['License-Expression']}"
    if not metadata.get_all("Project-URL"):
        yield "it has no URL"
    if not metadata.get_payload().startswith("# Tandem"):
        yield "its description is not the README"


def check_texts(files: dict[str, bytes]):
    for ending in ("LICENSE", "nanobind.txt", "robin-map.txt", "onednn-changes.txt"):
        if not any(".dist-info/licenses/" in path and path.endswith(ending) for path in files):
            yield f"it has no {ending} among its licences"
    for library, notice in (("libdnnl", "onednn-LICENSE"), ("libscipy_openblas", "openblas-LICENSE")):
        if any(library in path for path in files) and not any(notice in path for path in files):
            yield f"it has {library} without its licence"
    sbom = [content for path, content in files.items() if ".dist-info/sboms/" in path and path.endswith(".json")]
    if not sbom:
        yield "it has no SBOM"
    elif not {"nanobind", "robin-map"} <= {c["name"] for c in json.loads(sbom[0])["components"]}:
        yield "its SBOM lacks what is compiled in"


def check_paths(files: dict[str, bytes]):
    places = [str(ROOT).encode(), str(pathlib.Path.home()).encode() + b"/"]
    for path, content in files.items():
        for place in places:
            if place in content:
                yield f"{path} has the path {place.decode()} of the machine that built it"


def check_libraries(files: dict[str, bytes]):
    for path, content in files.items():
        if not content.startswith(b"\x7fELF"):
            continue
        elf = ELFFile(io.BytesIO(content))
        segments = {s["p_type"] for s in elf.iter_segments()}
        if "PT_GNU_RELRO" not in segments:
            yield f"{path} has no RELRO"
        stack = next((s for s in elf.iter_segments() if s["p_type"] == "PT_GNU_STACK"), None)
        if stack is not None and stack["p_flags"] & 1:
            yield f"{path} has a stack that can be executed"
        if not pathlib.PurePath(path).name.startswith(OURS):
            continue
        tags = {t.entry.d_tag: t.entry.d_val for t in elf.get_section_by_name(".dynamic").iter_tags()}
        if not (tags.get("DT_FLAGS", 0) & 0x8 or tags.get("DT_FLAGS_1", 0) & 0x1):
            yield f"{path} binds lazily"
        if {"DT_RPATH", "DT_RUNPATH"} & set(tags):
            yield f"{path} has a search path of its own"
        names = {s.name for s in elf.get_section_by_name(".dynsym").iter_symbols()}
        if "_runtime" in path and "__stack_chk_fail" not in names:
            yield f"{path} has no stack protector"
        if "_runtime" in path and not any(name.endswith("_chk") for name in names):
            yield f"{path} is not fortified"


def check_levels(files: dict[str, bytes], levels: str):
    for level in levels.replace(",", " ").split():
        if level != "none" and not any(path.endswith(f"-{level}.bin") for path in files):
            yield f"it has no kernels for {level}"


if __name__ == "__main__":
    main()
