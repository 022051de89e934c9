"""Programs that are run in processes of their own."""

import textwrap

from tests.processes import run_script


def run(program: str, tmp_path) -> str:
    made = run_script(textwrap.dedent(program), tmp_path)
    assert made.returncode == 0, made.stderr
    return made.stdout
