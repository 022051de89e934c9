#!/bin/sh
# Runs the operator checker and the gpu tests on the CUDA device, one process per test file, and prints one short table.
# Usage: tools/gpu_test.sh [log folder] [jobs] [files...]
cd "$(dirname "$0")/.."
logs=${1:-build/gpu-logs}
jobs=${2:-8}
shift 2 2> /dev/null || shift $#
mkdir -p "$logs"
files=${*:-$(ls tests/ops/test_*.py tests/gpu/test_*.py)}
export CHECK_ONLY=cuda PYTHONPATH=.
echo $files | tr ' ' '\n' | xargs -P "$jobs" -I FILE sh -c '
  name=$(echo FILE | tr / _ | sed s/.py$//)
  timeout 400 python3 -m pytest -q -p no:cacheprovider FILE > '"$logs"'/$name.log 2>&1
  echo "$(tail -1 '"$logs"'/$name.log) FILE"' | sort -k6 > "$logs/summary.txt"
cat "$logs/summary.txt"
grep -h "^FAILED\|^ERROR" "$logs"/*.log | sort | uniq -c | sort -rn | head -60
