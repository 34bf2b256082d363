#!/usr/bin/env bash
# What bounds a kernel: Nsight Compute's counters of problems on this machine's GPU, one row a launch. `trigen verify` runs the whole
# batch by the kernel that a plan would take; of its runs, which also check it, the first counts. Clocks are left alone; caches are
# flushed ahead of every launch, so that a second launch of a plan reads memory for what it would find in the L2.
# Usage: scripts/counters.sh [PROBLEM | FILE]...    (FILE: one problem a line, # for comments; none: slow rows of docs/performance.md)
# Environment: TRIGEN (build/trigen), NCU, TRIGEN_CACHE. What ncu and trigen wrote: build/counters.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${TRIGEN:-build/trigen}
ncu=${NCU:-$(command -v ncu || echo /usr/local/cuda/bin/ncu)}
[ -x "$ncu" ] || { echo "counters: no ncu (Nsight Compute) on the path or under /usr/local/cuda; name it in NCU" >&2; exit 2; }
logs=build/counters
mkdir -p "$logs" && rm -f "$logs"/*
[ $# -gt 0 ] || set -- forward,dtype=bf16,B=32,T=512,D=1024 grad_weight,dtype=bf16,B=32,T=512,D=1024 \
  forward,dtype=f16,B=193,T=512,D=1024,wdtype=f32,epilogue=bias forward,dtype=bf16,B=3,T=2048,D=779,epilogue=bias \
  forward,dtype=bf16,B=128,T=128,D=1180,K=2,wdtype=f32,epilogue=bias grad_input,dtype=f16,B=4096,H=8,T=32,D=96,wdtype=f32 \
  grad_input,dtype=f32,B=128,H=8,T=512,D=24,math=tf32 grad_input,dtype=bf16,B=4,T=512,D=256,K=3,wdtype=f32 \
  grad_weight,dtype=bf16,B=512,T=256,D=1304,epilogue=zero_outside grad_weight,dtype=bf16,B=61,T=256,D=512,epilogue=bias+zero_outside \
  grad_weight,dtype=f16,B=512,H=8,T=160,D=24,epilogue=bias+zero_outside
problems=()
for given; do
  if [ -f "$given" ]; then mapfile -t -O "${#problems[@]}" problems < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$given"); else problems+=("$given"); fi
done

# In the table's order; units are the base ones (ns, Hz, %, bytes, requests).
metrics=gpu__time_duration.sum,sm__cycles_elapsed.avg.per_second,lts__throughput.avg.pct_of_peak_sustained_elapsed,\
sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed,dram__throughput.avg.pct_of_peak_sustained_elapsed,\
dram__bytes_read.sum,dram__bytes_write.sum,l1tex__m_xbar2l1tex_read_bytes.sum,lts__t_requests.sum

# Rows of ncu's raw CSV on standard input: the first launch of each kernel, which a run launches once. $1, $2: bytes that the problem
# must read and write once.
rows() {
  awk -v metrics="$metrics" -v least_read="$1" -v least_written="$2" '
    function value(number, scale, form,   text) {
      text = metric[number] in at ? field[at[metric[number]]] : ""
      gsub(/,/, "", text)
      return text ~ /^[0-9]/ ? sprintf(form, text / scale) : "-"
    }
    function megabytes(bytes) { return sprintf("%.1f", bytes / 1e6) }
    BEGIN { split(metrics, metric, ",") }
    !/^"/ { next }  # messages of ncu
    { sub(/\r$/, ""); count = split(substr($0, 2, length($0) - 2), field, /","/) }
    !("ID" in at) { for (i = 1; i <= count; ++i) at[field[i]] = i; next }
    { name = field[at["Kernel Name"]]; sub(/\(.*/, "", name) }
    name == "" || seen[name]++ { next }  # units; further runs
    {
      product = name !~ /_(pack|unpack|split|reduce)/
      printf "  %-28s %8s %5s %5s %7s %6s %8s %7s %8s %7s %8s %11s\n", name, value(1, 1e3, "%.1f"), value(2, 1e9, "%.2f"),
        value(3, 1, "%.0f"), value(4, 1, "%.0f"), value(5, 1, "%.0f"), value(6, 1e6, "%.1f"), product ? megabytes(least_read) : "",
        value(7, 1e6, "%.1f"), product ? megabytes(least_written) : "", value(8, 1e6, "%.1f"), value(9, 1e6, "%.2f")
    }
    END { exit name == "" }'
}

printf '%-30s %8s %5s %5s %7s %6s %8s %7s %8s %7s %8s %11s\n' '' '' '' '' '' '' 'DRAM MB' '' 'DRAM MB' '' 'SM reads' L2
printf '%-30s %8s %5s %5s %7s %6s %8s %7s %8s %7s %8s %11s\n' launch us GHz 'L2 %' tensor% DRAM% read least written least MB 'M requests'
failed=0
for at in "${!problems[@]}"; do
  problem=${problems[at]} log=$logs/$at
  least() { sed -n "s/.*\"least_$1_bytes\": \([0-9.e+]*\),*/\1/p" "$log.explain"; }
  "$program" emit --arch sm_90a --explain --json --rows 1 "$problem" >"$log.explain" # bytes, which no architecture changes
  "$ncu" --clock-control none --kernel-name 'regex:^trigen_' --metrics "$metrics" --csv --page raw --print-units base \
    --log-file "$log.csv" "$program" verify "$problem" >"$log.verify" 2>&1 || {
    echo "counters: $problem: see $log.verify and $log.csv" >&2
    tail -n 2 "$log.verify" "$log.csv" >&2 || true
    failed=1
    continue
  }
  sed -n 's/^ok *\([^ ]*\) *\([^ ]*\) .*/\1  \2/p' "$log.verify"
  rows "$(least read)" "$(least written)" <"$log.csv" || { echo "counters: $problem: no launch counted, see $log.csv" >&2; failed=1; }
done
exit $failed
