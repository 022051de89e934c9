"""Starts a process per framework, asks them in turn, and collects rows for the table."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

from cases import FIRST_USE_BAR, FIRST_USE_BEFORE, NEW_SHAPE_BAR, Case

THREADS = 2


class Peer:
    """A framework in a process of its own."""

    def __init__(self, name: str, python: str, environment: dict[str, str] | None = None):
        self.name = name
        # A file, not a pipe: a talkative framework cannot block on it.
        self.messages = tempfile.TemporaryFile(mode="w+")
        threads = {f"{prefix}_NUM_THREADS": str(THREADS) for prefix in ("OMP", "MKL", "TANDEM")}
        self.process = subprocess.Popen(
            [python, str(pathlib.Path(__file__).with_name("worker.py")), name, str(THREADS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            text=True,
            env={**os.environ, **threads, **(environment or {})},
        )
        self.version = self.ask(do="hello").get("version")

    def ask(self, **request) -> dict:
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        status = self.process.wait()
        self.messages.seek(0)
        last = (self.messages.read().strip().splitlines() or [""])[-1]
        return {"error": f"{self.name} ended with status {status}: {last}"}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


@dataclass
class Row:
    section: str
    case: str
    ours: float | None  # seconds
    against: str  # what the other time is: a peer, or ourselves under other conditions
    theirs: float | None
    ratio: float | None
    bar: str
    ok: bool
    note: str = ""


def ratio_row(section: str, case: str, ours: dict, against: str, theirs: dict, bar: float, key="best", note="") -> Row:
    error = ours.get("error") or theirs.get("error")
    if error:
        return Row(section, case, ours.get(key), against, theirs.get(key), None, f"{bar:g}x", False, error)
    ratio = ours[key] / theirs[key]
    return Row(section, case, ours[key], against, theirs[key], ratio, f"{bar:g}x", ratio <= bar, note)


def limit_row(section: str, case: str, ours: dict, key: str, limit: float, note="") -> Row:
    bar = f"{limit * 1e3:g} ms" if limit >= 1e-3 else f"{limit * 1e6:g} µs"
    if "error" in ours:
        return Row(section, case, None, "", None, None, bar, False, ours["error"])
    return Row(section, case, ours[key], "", None, None, bar, ours[key] <= limit, note)


def best_of(answers: list[dict]) -> dict:
    """The best of several rounds; a failure in any of them is a failure."""
    for answer in answers:
        if "error" in answer:
            return answer
    return {key: min(answer[key] for answer in answers) for key in answers[0]}


def throughput(section: str, case: Case, ours: Peer, peers: dict[str, Peer], rounds: int, budget: float) -> list[Row]:
    wanted = [ours, *(peers[name] for name in case.bars if name in peers)]
    answers = [[] for _ in wanted]
    for _ in range(rounds):
        for peer, rows in zip(wanted, answers):
            time.sleep(0.005)  # lets the threads of the last one stop spinning
            rows.append(
                peer.ask(do="time", name=case.name, setup=case.setup, statement=case.statement, budget=budget / rounds)
            )
    mine, *theirs = map(best_of, answers)
    return [
        ratio_row(section, case.name, mine, peer.name, found, case.bars[peer.name])
        for peer, found in zip(wanted[1:], theirs)
    ]


@contextlib.contextmanager
def busy_neighbour():
    """Another process that never rests, on one of our cores."""
    core = min(os.sched_getaffinity(0))
    # It looks for its parent now and then, so that it does not outlive a runner that was killed.
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() == {os.getpid()}:\n    for _ in range(10**6): pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    time.sleep(0.2)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def busy(section: str, case: Case, ours: Peer, torch: Peer | None, rounds: int, budget: float) -> Row:
    def ratio(peer):
        request = {"do": "time", "name": case.name, "setup": case.setup, "statement": case.statement}
        quiet, loud = [], []
        for _ in range(rounds):
            quiet.append(peer.ask(**request, budget=budget / rounds))
            with busy_neighbour():
                loud.append(peer.ask(**request, budget=budget / rounds))
        return best_of(quiet), best_of(loud)

    quiet, loud = ratio(ours)
    note = ""
    if torch is not None:
        their_quiet, their_loud = ratio(torch)
        if "error" not in their_quiet | their_loud:
            note = f"torch: {their_loud['median'] / their_quiet['median']:.1f}x"
    # Medians: the best time of a busy machine is the one that the neighbour happened to miss.
    ((against, bar),) = case.bars.items()
    return ratio_row(section, case.name, loud, against, quiet, bar, key="median", note=note)


def new_shape(section: str, case: Case, ours: Peer, rounds: int) -> Row:
    answer = ours.ask(do="new_shape", setup=case.setup, statement=case.statement)
    note = f"worst of 40: {answer['worst'] * 1e6:.0f} µs" if "worst" in answer else ""
    return limit_row(section, f"{case.name}: over the warm call", answer, "median", NEW_SHAPE_BAR, note)


def first_use(section: str, cases: list[Case], name: str, python: str, rounds: int) -> list[Row]:
    """New processes, first with an empty kernel cache and then with the one that the first has filled."""
    times: dict[tuple[str, str], list[dict]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for state in FIRST_USE_BAR:
                peer = Peer(name, python, {"TANDEM_CACHE_DIR": folder})
                for case in [FIRST_USE_BEFORE, *cases]:
                    answer = peer.ask(do="first_use", setup=case.setup, statement=case.statement)
                    times.setdefault((case.name, state), []).append(answer)
                peer.close()
    rows = []
    for state, limit in FIRST_USE_BAR.items():
        very_first = best_of(times[FIRST_USE_BEFORE.name, state]).get("best", 0.0)
        note = f"(the process's very first call: {very_first * 1e3:.1f} ms)"
        for case in cases:
            rows.append(
                limit_row(section, f"{case.name}, {state}", best_of(times[case.name, state]), "best", limit, note)
            )
            note = ""
    return rows


def as_json(rows: list[Row], machine: dict) -> str:
    return json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1)
