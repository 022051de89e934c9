"""What a training step spends its time on, kernel by kernel, as CUPTI sees it (through torch.profiler, for either library).

    python benchmarks/gpu_kernels.py tandem resnet50 compiled [--out path]

Prints kernels by the time they take in one step, and the time in which the device had nothing to do.
"""

from __future__ import annotations

import argparse
import json


def record(step, sync, steps: int = 3) -> list[list]:
    """[start, duration, name] in µs of every kernel, copy and fill of the last step, in order."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    for _ in range(3):
        step()
    sync()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(steps):
            step()
        sync()
    events = []
    for event in p.profiler.kineto_results.events():
        if str(event.device_type()).endswith("CUDA"):
            events.append([event.start_ns() / 1e3, event.duration_ns() / 1e3, event.name()])
    events.sort()
    count = len(events) // steps  # steps are alike
    return events[-count:]


def table(events: list[list], rows: int = 40) -> str:
    total = sum(e[1] for e in events)
    span = events[-1][0] + events[-1][1] - events[0][0]
    by_name: dict[str, list] = {}
    for _, duration, name in events:
        entry = by_name.setdefault(name[:110], [0, 0.0])
        entry[0] += 1
        entry[1] += duration
    lines = [f"{len(events)} kernels, {total / 1e3:.3f} ms busy of {span / 1e3:.3f} ms"]
    for name, (count, us) in sorted(by_name.items(), key=lambda item: -item[1][1])[:rows]:
        lines.append(f"{us:10.1f} µs {100 * us / total:5.1f}% {count:5} x {name}")
    return "\n".join(lines)


def write(events: list[list], title: str, path: str):
    """The table as path.txt, and every kernel in order as path.json."""
    first = events[0][0]
    with open(path + ".txt", "w") as file:
        file.write(f"{title}: {table(events)}\n")
    with open(path + ".json", "w") as file:
        json.dump([[round(s - first, 2), round(d, 2), name] for s, d, name in events], file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("tandem", "torch"))
    parser.add_argument("case")
    parser.add_argument("mode", nargs="?", default="compiled")
    parser.add_argument("--out", default="", help="where to write path.txt and path.json")
    args = parser.parse_args()
    from gpu import library_of

    models, compiled, sync, _ = library_of(args.library, args.mode)
    events = record(compiled(getattr(models, args.case)()), sync)
    print(f"{args.library} {args.case} {args.mode}: {table(events)}", flush=True)
    if args.out:
        write(events, f"{args.library} {args.case} {args.mode}", args.out)


if __name__ == "__main__":
    main()
