"""Write a list of what the package is made of that others made: CycloneDX 1.6, as JSON.

    python tools/sbom.py OUTPUT [--libraries FOLDER] [--compiler "GNU 12.2"]

`--libraries`: the folder of shared libraries that go into the package; those that are there are listed with their checksum. The
same build gives the same file: there is no date and no number of its own in it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# What may be inside: (name, package that it comes from, licence, file in the folder of libraries or None if it is compiled in)
BUNDLED = [
    ("nanobind", "nanobind", "BSD-3-Clause", None),
    ("robin-map", "nanobind", "MIT", None),
    ("oneDNN", "onednn-cpu-gomp", "Apache-2.0", "libdnnl.so.3"),
    ("OpenBLAS", "scipy-openblas32", "BSD-3-Clause", "libscipy_openblas.so"),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--libraries", type=pathlib.Path)
    parser.add_argument("--compiler", default="")
    options = parser.parse_args()
    options.output.write_text(json.dumps(document(options.libraries, options.compiler), indent=1) + "\n")


def document(libraries: pathlib.Path | None, compiler: str) -> dict:
    own = {"type": "library", "bom-ref": PROJECT["name"], "name": PROJECT["name"], "version": PROJECT["version"],
           "licenses": [{"expression": PROJECT["license"]}], "purl": purl(PROJECT["name"], PROJECT["version"])}  # fmt: skip
    inside = [c for item in BUNDLED if (c := bundled(*item, libraries))]
    if compiler.startswith("GNU"):
        inside.append(
            component("libstdc++", compiler.split()[-1], "GPL-3.0-or-later WITH GCC-exception-3.1", "compiled in")
        )
    needed = [required(text) for text in PROJECT["dependencies"]]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": inside + needed,
        "dependencies": [{"ref": PROJECT["name"], "dependsOn": [c["bom-ref"] for c in inside + needed]}],
    }


def bundled(name: str, package: str, licence: str, file: str | None, libraries: pathlib.Path | None) -> dict | None:
    path = libraries / file if file and libraries else None
    if path is not None and not path.exists():
        return None
    made = component(name, version(package), licence, f"from the package {package}")
    if name == "oneDNN":
        made["pedigree"] = {"notes": "names in its dynamic string table were changed, see licenses/onednn-changes.txt"}
    if path is not None:
        made["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]
    return made


def component(name: str, version: str | None, licence: str, what: str) -> dict:
    made = {"type": "library", "bom-ref": name, "name": name, "scope": "required", "description": what}
    if version is not None:
        made["version"] = version
    return made | {"licenses": [{"expression": licence}]}


def required(text: str) -> dict:
    """A package that is installed with this one, of a version that the installer chooses."""
    name = re.match(r"[A-Za-z0-9._-]+", text)[0]
    return {"type": "library", "bom-ref": f"pkg:pypi/{name}", "name": name, "scope": "required", "purl": purl(name),
            "description": f"installed beside it: {text}"}  # fmt: skip


def purl(name: str, version: str | None = None) -> str:
    return f"pkg:pypi/{name.lower().replace('_', '-')}" + (f"@{version}" if version else "")


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
