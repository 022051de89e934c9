"""The plugin of pytest."""

import sys


def test_the_pytest_plugin(tmp_path):
    import subprocess

    (tmp_path / "test_one.py").write_text(
        "import tandem as td\n\ndef test(assert_close, gradcheck):\n    assert_close(td.ones(2), td.ones(2))\n"
        "    assert gradcheck(td.sin, td.ones(2, dtype=td.float64, requires_grad=True))\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tandem.testing.pytest_plugin",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
