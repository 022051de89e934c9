"""Folders of src/ include downwards only."""

import re
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

# From the bottom up: each folder may include those before it, and the headers of src/ itself, which include no folder.
# The library is one room; what it does on CUDA devices is another.
ROOMS = [
    "memory", "device", "device/cuda", "files", "portable", "profile", "tensor", "loader", "library", "library/cuda", "plan",
    "replay", "operators", "autograd", "capture", "autobatch", "dispatch", "executor", "queue", "collectives", "bindings",
]  # fmt: skip


def room_of(path: str) -> str:
    folder = str(Path(path).parent)
    while folder not in ROOMS and "/" in folder:
        folder = str(Path(folder).parent)
    return "" if folder == "." else folder


def test_folders_include_downwards_only():
    upwards = []
    for file in sorted([*SRC.rglob("*.h"), *SRC.rglob("*.cc")]):
        name = str(file.relative_to(SRC))
        room = room_of(name)
        assert room == "" or room in ROOMS, f"{name}: add its folder to ROOMS"
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            other = room_of(included)
            if other and other != room and (not room or ROOMS.index(other) > ROOMS.index(room)):
                upwards.append(f"{name} includes {included}")
    assert not upwards, "\n".join(upwards)


def test_what_runs_plans_needs_no_python():
    """Memory, devices, the library, the loader of machine code, plans and their replay are plain C++ (Note [Without Python])."""
    plain = ("memory", "device", "loader", "library", "files", "profile", "plan", "replay")
    found = [
        str(file.relative_to(SRC))
        for file in sorted([*SRC.rglob("*.h"), *SRC.rglob("*.cc")])
        if file.relative_to(SRC).parts[0] in plain and "<Python.h>" in file.read_text()
    ]
    assert not found, found
