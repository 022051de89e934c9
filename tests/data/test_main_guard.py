"""Programs without a main guard."""

import os
import subprocess
import sys


def test_a_program_without_main_guard_whose_workers_import_it_is_told_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tandem as td\n"
        "for batch in td.data.DataLoader(range(4), num_workers=1, multiprocessing_context='spawn'):\n    print(batch)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        timeout=300,
    )
    assert done.returncode
    assert 'if __name__ == "__main__"' in done.stderr
