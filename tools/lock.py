"""Write requirements.lock: the newest versions of what building, testing, the examples and the docs need, all of them exact.

    python tools/lock.py

Versions are chosen in a new environment, so that nothing installed here decides them. The file is used as constraints (pip -c), by
make and by tools/wheel.py.
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROUPS = ["build", "core", "make", "wheel", "test", "examples", "docs"]
HEAD = "# Versions that Tandem is built and tested with; written by `make lock`, used as constraints.\n"


def main():
    lines = subprocess.check_output([sys.executable, ROOT / "tools/requirements.py", *GROUPS], text=True)
    with tempfile.TemporaryDirectory() as folder:
        python = pathlib.Path(folder) / "venv/bin/python"
        subprocess.check_call([sys.executable, "-m", "venv", python.parents[1]])
        wanted = pathlib.Path(folder) / "requirements.txt"
        wanted.write_text(lines)
        subprocess.check_call([python, "-m", "pip", "install", "--quiet", "-r", wanted])
        frozen = subprocess.check_output([python, "-m", "pip", "freeze"], text=True)
    (ROOT / "requirements.lock").write_text(HEAD + frozen)


main()
