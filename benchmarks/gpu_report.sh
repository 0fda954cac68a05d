#!/usr/bin/env bash
# Tests, conformance and benchmarks on a CUDA device in one report file, without a network.
#   benchmarks/gpu_report.sh [FILE]      FILE: build/gpu/report.txt if not given; DEVICE=cuda:N, PYTHON=... can be set
# Needs the extras cuda12 or cuda13, and test; takes PyTorch and JAX along where they are installed, and the array API
# test suite where conformance/run.py finds it ($ARRAY_API_TESTS_DIR), also a copy without git's records, whose commit
# nobody can tell; and compute-sanitizer, which checks every access of some tests. Parts run to their ends; only what
# hangs, for LIMIT seconds (an hour), is stopped, and the next part begins. Where a machine is lent for some minutes at a
# time, PARTS="tests conformance" names what this call does, of tests conformance benchmarks accesses, and WITHIN=560 the
# seconds that all of it may take: what is still to be done then is said; TABLES="calls steps" names some benchmarks. The
# last lines say what passed and failed.
set -uo pipefail
cd "$(dirname "$0")/.."

report=${1:-build/gpu/report.txt}
device=${DEVICE:-cuda:0}
limit=${LIMIT:-3600}
within=${WITHIN:-100000}
parts=" ${PARTS:-tests conformance benchmarks accesses} "
python=${PYTHON:-$(command -v python || command -v python3)}
workers=$(nproc 2>/dev/null || echo 2)
workers=$((workers > 14 ? 14 : workers))
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

for one in $parts; do
    case $one in
        tests | conformance | benchmarks | accesses) ;;
        *) echo "PARTS must be of tests conformance benchmarks accesses, got $one" >&2 && exit 2 ;;
    esac
done
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

# Run one part under a heading, if it is asked for; what it prints goes into the report, and into the summary its last
# count of tests, or of a benchmark how many of its lines say that something is wrong.
part() {
    local name=$1 title=$2 started=$SECONDS status first lines counted seconds
    shift 2
    [[ $parts == *" $name "* ]] || return 0
    printf '\n=== %s\n' "$title" | tee -a "$report"
    first=$(($(wc -l <"$report") + 1))
    seconds=$((within - SECONDS - 35 < limit ? within - SECONDS - 35 : limit))
    if [ "$seconds" -lt 30 ]; then
        failed=1
        summary+=("$title: not begun, $within seconds are over")
        return 0
    fi
    timeout --foreground --signal=INT --kill-after=30 "$seconds" env --default-signal=INT "$@" >>"$report" 2>&1  # INT: pytest sums up
    status=$?
    printf -- '--- %s: exit status %d after %d s\n' "$title" "$status" $((SECONDS - started)) | tee -a "$report"
    [ "$status" -eq 0 ] || failed=1
    lines=$(tail -n "+$first" "$report")
    counted=$(grep -E '[0-9]+ (passed|failed|error)' <<<"$lines" | tail -n 1)
    [ "$name" != benchmarks ] || counted="$(grep -cE 'Error: |wrong [0-9]' <<<"$lines") lines say Error or wrong"
    case $status in 124 | 130 | 137) counted="stopped after $seconds s${counted:+, $counted}" ;; esac
    summary+=("$title: exit status $status${counted:+, $counted}")
}

{
    echo "xtensor on $device, $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    "$python" -m xtensor info
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
} >"$report" 2>&1

side_by_side=()  # without pytest-xdist tests run one after the other
"$python" -c "import xdist" 2>/dev/null && side_by_side=(-n "$workers")
part tests "Tests on the device (pytest -m gpu)" "$python" -m pytest -m gpu -q -p no:cacheprovider "${side_by_side[@]}" \
    --continue-on-collection-errors -W default::DeprecationWarning -W default::UserWarning \
    $(grep -rlE 'mark\.gpu\b' tests --include='test_*.py')
part conformance "Conformance, 200 examples" "$python" conformance/run.py --device "$device" --examples 200 \
    --workers "$workers" --if-found --any-commit
part benchmarks "Benchmarks" "$python" -m benchmarks gpu --device "$device" ${TABLES:+--tables $TABLES}
if command -v compute-sanitizer >/dev/null; then  # comes with the CUDA toolkit
    part accesses "Accesses of kernels (compute-sanitizer)" compute-sanitizer --tool memcheck --error-exitcode 9 "$python" \
        -m pytest -m gpu -q -p no:cacheprovider -p tests.unpooled \
        -k "random_programs or row_programs or reductions or graphs" tests/test_gpu.py
fi

printf '\n=== Summary\n' | tee -a "$report"
printf '%s\n' "${summary[@]}" | tee -a "$report"

echo "the report is in $report"
exit "$failed"
