"""What `make wheel` relies on: the lock, the licences, the list of contents, and install lines that name the package."""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(lines) -> set[str]:
    return {re.match(r"[A-Za-z0-9._-]+", line)[0].lower().replace("_", "-") for line in lines}


def test_the_lock_has_an_exact_version_of_everything_that_builds_and_tests():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][^ ]*", line) for line in lines)
    needed = [*PROJECT["build-system"]["requires"], *PROJECT["project"]["dependencies"]]
    for group in ("test", "examples", "docs"):
        needed += PROJECT["project"]["optional-dependencies"][group]
    for group in ("make", "wheel"):
        needed += PROJECT["dependency-groups"][group]
    assert set() == names(needed) - names(lines)


def test_licences_of_what_is_compiled_in_are_there():
    for name, words in (("nanobind", "Wenzel Jakob"), ("robin-map", "Thibaut Goetghebuer-Planchon")):
        assert words in (ROOT / "licenses" / f"{name}.txt").read_text()
    assert "was changed" in (ROOT / "licenses" / "onednn-changes.txt").read_text()
    assert {"LICENSE", "licenses/*.txt"} == set(PROJECT["project"]["license-files"])


def test_the_list_of_contents(tmp_path):
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libdnnl.so.3").write_bytes(b"x")
    command = [
        sys.executable,
        ROOT / "tools" / "sbom.py",
        tmp_path / "a.json",
        "--libraries",
        libraries,
        "--compiler",
        "GNU 12.2",
    ]
    for _ in range(2):
        subprocess.check_call(command)
        made = json.loads((tmp_path / "a.json").read_text())
        (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert made == json.loads((tmp_path / "b.json").read_text())
    assert ("CycloneDX", "tandem-dl") == (made["bomFormat"], made["metadata"]["component"]["name"])
    found = {c["name"]: c for c in made["components"]}
    assert {"nanobind", "robin-map", "oneDNN", "libstdc++", "numpy", "llvmlite"} <= set(found)
    assert "OpenBLAS" not in found  # its library is not there
    assert 64 == len(found["oneDNN"]["hashes"][0]["content"])


def test_install_lines_name_the_package():
    extras = PROJECT["project"]["optional-dependencies"]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "tandem").rglob("*.py")]
    found = 0
    for page in pages:
        text = page.read_text()
        assert not re.search(r"(?<![\w.-])tandem\[[a-z]+\]|pip install '?tandem(?![\w-])", text), page
        for extra in re.findall(r"tandem-dl\[([a-z]+)\]", text):
            found += 1
            assert extra in extras, (page, extra)
    assert found > 5


def test_pythons_that_a_wheel_can_be_built_for_are_found():
    code = "import wheel, sys; print(wheel.found_pythons())"
    if not (pathlib.Path(sys.base_prefix) / "include" / f"python3.{sys.version_info[1]}" / "Python.h").exists():
        pytest.skip("this Python has no headers")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True)
    assert f"'3.{sys.version_info[1]}'" in done.stdout, done.stderr
