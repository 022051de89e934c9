#!/bin/sh
# Runs the operator checker's files on the CUDA device under compute-sanitizer, one process per file, and prints one line for each.
# Usage: tools/gpu_sanitize.sh [tool: memcheck, racecheck, initcheck, synccheck] [log folder] [jobs] [seconds a file] [files...]
# A file that takes longer is cut off, and counts for what ran until then.
cd "$(dirname "$0")/.."
tool=${1:-memcheck}
logs=${2:-build/gpu-sanitize}
jobs=${3:-8}
seconds=${4:-600}
shift 4 2> /dev/null || shift $#
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2> /dev/null | head -1)
[ -x "$sanitizer" ] || { echo "compute-sanitizer was not found; it comes with the CUDA toolkit"; exit 1; }
mkdir -p "$logs"
files=${*:-$(ls tests/ops/test_*.py tests/gpu/test_*.py)}
export CHECK_ONLY=cuda PYTHONPATH=. sanitizer tool logs seconds
echo $files | tr ' ' '\n' | xargs -P "$jobs" -I FILE sh -c '
  log=$logs/$(echo FILE | tr / _ | sed s/.py$//).log
  timeout -s INT $seconds $sanitizer --tool $tool --target-processes all --print-limit 20 \
    python3 -m pytest -q -x -p no:cacheprovider FILE > $log 2>&1
  summary=$(grep -h SUMMARY $log | tail -1 | sed "s/=========//")
  [ "$summary" ] || ! grep -q "before first instrumented" $log || summary=" nothing of it runs on the device"
  echo "FILE:${summary:- cut off after $seconds s}"' | sort > "$logs/summary.txt"
cat "$logs/summary.txt"
grep -h "Invalid\|Uninitialized\|Race reported\|Barrier error" "$logs"/*.log | sed 's/=========//' | sort | uniq -c | sort -rn | head -20
