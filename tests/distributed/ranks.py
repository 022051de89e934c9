"""Programs of several ranks, started by tandem run."""

import subprocess
import sys
import textwrap

# -- tandem run


def run(tmp_path, program, *flags):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, "-m", "tandem", "run", *flags, str(path)], capture_output=True, text=True, timeout=300,
    )  # fmt: skip
