"""Programs that are run in processes of their own."""

import subprocess
import sys
import textwrap


def run(program: str, tmp_path) -> str:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    made = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return made.stdout
