#!/usr/bin/env bash
# Tests, conformance and benchmarks on a CUDA device in one report file, without a network.
#   benchmarks/gpu_report.sh [FILE]      FILE: build/gpu/report.txt if not given; DEVICE=cuda:N, PYTHON=... can be set
# Needs the extras cuda12 or cuda13, and test; takes PyTorch and JAX along where they are installed, and the array API
# test suite where conformance/run.py finds it ($ARRAY_API_TESTS_DIR), also a copy without git's records, whose commit
# nobody can tell; and compute-sanitizer, which checks every access of some tests. Parts run to their ends; only what
# hangs, for LIMIT seconds (an hour), is stopped, and the next part begins. The last lines say what passed and failed.
set -uo pipefail
cd "$(dirname "$0")/.."

report=${1:-build/gpu/report.txt}
device=${DEVICE:-cuda:0}
limit=${LIMIT:-3600}
python=${PYTHON:-python}
workers=$(nproc 2>/dev/null || echo 2)
workers=$((workers > 14 ? 14 : workers))
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

if ! found=$("$python" -c "import sys, xtensor as xt
try:
    xt.ones(1, device=sys.argv[1]).evaluate()
except Exception as error:
    sys.exit(str(error))" "$device" 2>&1); then
    echo "no report: $device cannot be used here" >&2
    echo "$found" >&2
    exit 1
fi

mkdir -p "$(dirname "$report")"
failed=0
summary=()

# Run one part under a heading; what it prints goes into the report, and its last count of tests into the summary.
part() {
    local title=$1 started=$SECONDS status first counted
    shift
    printf '\n=== %s\n' "$title" | tee -a "$report"
    first=$(wc -l <"$report")
    timeout --foreground --signal=INT --kill-after=10 "$limit" env --default-signal=INT "$@" >>"$report" 2>&1  # INT: pytest sums up
    status=$?
    printf -- '--- %s: exit status %d after %d s\n' "$title" "$status" $((SECONDS - started)) | tee -a "$report"
    [ "$status" -eq 0 ] || failed=1
    counted=$(tail -n "+$first" "$report" | grep -E '[0-9]+ (passed|failed|error)' | tail -n 1)
    summary+=("$title: exit status $status${counted:+, $counted}")
}

{
    echo "xtensor on $device, $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    "$python" -m xtensor info
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
} >"$report" 2>&1

part "Tests on the device (pytest -m gpu)" "$python" -m pytest -m gpu -q -p no:cacheprovider -n "$workers" \
    --continue-on-collection-errors -W default::DeprecationWarning -W default::UserWarning tests
part "Conformance, 200 examples" "$python" conformance/run.py --device "$device" --examples 200 --workers "$workers" \
    --if-found --any-commit
part "Benchmarks" "$python" -m benchmarks gpu --device "$device"
if command -v compute-sanitizer >/dev/null; then  # comes with the CUDA toolkit
    part "Accesses of kernels (compute-sanitizer)" compute-sanitizer --tool memcheck --error-exitcode 9 "$python" \
        -m pytest -m gpu -q -p no:cacheprovider -p tests.unpooled \
        -k "random_programs or row_programs or reductions or graphs" tests/test_gpu.py
fi

printf '\n=== Summary\n' | tee -a "$report"
printf '%s\n' "${summary[@]}" | tee -a "$report"

echo "the report is in $report"
exit "$failed"
