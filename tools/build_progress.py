"""Runs a build and shows how far it is, instead of nothing or everything: `python tools/build_progress.py COMMAND...`.

Ninja counts its steps, "[12/160] Building CXX object ...": on a terminal one line follows them, elsewhere there is one for every
tenth. All output is shown when the build fails, and with TANDEM_BUILD_VERBOSE=1 as it comes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

_STEP = re.compile(r"\[(\d+)/(\d+)\]\s*(.*)")
_KEPT = 200  # lines that are shown after a failure


def main(command: list[str], out=sys.stderr) -> int:
    verbose = os.environ.get("TANDEM_BUILD_VERBOSE", "0") not in ("", "0")
    live, started, told, lines = out.isatty(), time.monotonic(), -1, []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in process.stdout:
        lines = [*lines[-_KEPT:], line]
        if verbose:
            out.write(line)
            continue
        found = _STEP.search(line)
        if not found:
            continue
        done, total = int(found[1]), int(found[2])
        spent = time.monotonic() - started
        if live:
            what = os.path.basename(found[3].split()[-1]) if found[3].split() else ""
            out.write(f"\r\033[Kbuilding: {done}/{total}, {spent:.0f} s  {what[:40]}")
            out.flush()
        elif total and done * 10 // total != told:
            told = done * 10 // total
            out.write(f"building: {done}/{total}, {spent:.0f} s\n")
            out.flush()
    code = process.wait()
    if live and not verbose:
        out.write("\r\033[K")
    if code and not verbose:
        out.write("".join(lines))
    elif not code:
        out.write(f"built in {time.monotonic() - started:.0f} s\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
