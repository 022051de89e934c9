"""The pages on data and checkpoints: their examples run, in order, and print what they say. So do the example programs, small."""

import contextlib
import io
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["data", "checkpoints"])
def test_examples_of_a_page(page, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    found = re.findall(
        r"```python\n(.*?)```\n((?:\n(?:    [^\n]+\n)+)?)", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL
    )
    assert len(found) > 2
    for code, output in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page}.md", "exec"), names)
        expected = "\n".join(line[4:] for line in output.strip("\n").splitlines())
        assert expected == printed.getvalue().rstrip()


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hogwild_learns():
    pytest.importorskip("sklearn")
    text = run("examples/hogwild.py", "--processes", "2", "--epochs", "5")
    assert float(text.split()[-1]) > 0.85


def test_the_example_of_a_crash_resumes_exactly():
    pytest.importorskip("sklearn")
    text = run("examples/resume_after_crash.py", "--steps", "12", "--save-every", "2")
    assert "the same to the last bit" in text
    again = text.partition("and again:")[2]
    assert int(re.search(r"starts at step (\d+)", again)[1]) >= 2
