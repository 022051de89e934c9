"""Print requirements from pyproject.toml: `requirements.py build test` for those of the build and of the extra or group test."""

import pathlib
import sys
import tomllib

project = tomllib.loads((pathlib.Path(__file__).parent.parent / "pyproject.toml").read_text())
for name in sys.argv[1:]:
    if name == "build":
        lines = project["build-system"]["requires"]
    elif name == "core":
        lines = project["project"]["dependencies"]
    elif name in project["dependency-groups"]:
        lines = project["dependency-groups"][name]
    else:
        lines = project["project"]["optional-dependencies"][name]
    print("\n".join(lines))
