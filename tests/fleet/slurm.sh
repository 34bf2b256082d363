#!/usr/bin/env bash
# examples/fleet/slurm on a Slurm cluster of this machine: slurmctld and three slurmd of Debian's packages, two kinds of GPU as gres, the emulated
# device for each. A task's processes are killed and its node is lost in the middle; Slurm requeues the task. Needs root and munge.
# Usage: tests/fleet/slurm.sh WORK PROBLEMS       WORK receives base.trigen; the trigen program is the one on PATH
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$1 problems=$2
mkdir -p "$work"/{state,munge,fleet}
host=$(hostname -s)
port=$((20000 + RANDOM % 20000))
pids=()
finish() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
}
trap finish EXIT
fail() {
  echo "slurm.sh: $*" >&2
  tail -n 15 "$work"/*.log "$work"/*.out >&2 2>/dev/null || true
  exit 1
}
# until_true <seconds> <what> <command>...
until_true() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "no $what in time: $*"
    sleep 0.2
  done
}

chmod 0755 "$work" "$work/munge"
head -c 1024 /dev/urandom >"$work/munge/key"
chmod 0400 "$work/munge/key"
munged --foreground --force --key-file "$work/munge/key" --socket "$work/munge/socket" --pid-file "$work/munge/pid" --log-file "$work/munge.log" \
  --seed-file "$work/munge/seed" 2>"$work/munged.log" &
pids+=($!)
cat >"$work/slurm.conf" <<CONF
ClusterName=trigen
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmctldPort=$port
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool.%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$work/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0
SchedulerType=sched/builtin
GresTypes=gpu
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=300
MinJobAge=300
KillWait=2
NodeName=v0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8 Gres=gpu:v100:1
NodeName=v1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=8 Gres=gpu:v100:1
NodeName=a0 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 3)) CPUs=8 Gres=gpu:a100:1
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
CONF
# Slurm counts device files.
cat >"$work/gres.conf" <<'CONF'
NodeName=v[0-1] Name=gpu Type=v100 File=/dev/null
NodeName=a0 Name=gpu Type=a100 File=/dev/null
CONF
# What stands for the nodes' GPUs.
cat >"$work/prolog" <<'PROLOG'
#!/bin/sh
case $SLURMD_NODENAME in v*) echo export TRIGEN_DRIVER=emulated:sm_70 ;; a*) echo export TRIGEN_DRIVER=emulated:sm_80 ;; esac
PROLOG
chmod +x "$work/prolog"
export SLURM_CONF=$work/slurm.conf
until_true 10 "munge" test -S "$work/munge/socket"
slurmctld -D -i 2>"$work/slurmctld.log" >&2 &
pids+=($!)
for node in v0 v1 a0; do
  slurmd -D -N "$node" 2>"$work/slurmd.$node.log" >&2 &
  pids+=($!)
done
until_true 12 "cluster" bash -c "[[ \$(sinfo -h -t idle -o %D) == 3 ]]"

export PROBLEMS=$problems FLEET=$work/fleet BASE=$work/base.trigen XDG_CACHE_HOME=$work/home SBATCH_OUTPUT=$work/%x-%A_%a.out SBATCH_OPEN_MODE=append
export SBATCH_OPTIONS="--cpus-per-task=1 --output=$work/%x-%A_%a.out --open-mode=append"
mkdir -m 0700 "$XDG_CACHE_HOME"
unset TRIGEN_CACHE TRIGEN_DRIVER
merge=$("$here/examples/fleet/slurm/submit.sh" v100:2 a100:1)

# The node v1 is lost in the middle of its task: nobody there says how it ended.
worker() { pgrep -f "trigen tune .*--fleet $FLEET" | while read -r pid; do ! grep -zxq SLURMD_NODENAME=v1 "/proc/$pid/environ" || echo "$pid"; done; }
until_true 30 "task on v1" bash -c "$(declare -f worker); [[ -n \$(worker) ]]"
pid=$(worker)
kill -KILL "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid" || fail "the worker was gone before it was killed"
scontrol update nodename=v1 state=down reason=lost
scontrol update nodename=v1 state=resume 2>/dev/null || true  # it may have come back by itself
until_true 10 "requeued task" bash -c '[[ -n $(squeue -h -n trigen-tune -t PD -o %F_%K) ]]'
scontrol update jobid="$(squeue -h -n trigen-tune -t PD -o %F_%K)" starttime=now  # it would wait for two minutes
until_true 60 "merged base" bash -c "scontrol show job $merge | grep -q JobState=COMPLETED"
[[ -s $BASE ]] || fail "the merging job left no base"
grep -q "requeue job.*failure of node v1" "$work/slurmctld.log" || fail "no task was requeued"
grep -h "records" "$work"/trigen-merge-*.out
