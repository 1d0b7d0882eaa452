#!/usr/bin/env bash
# A Slurm cluster of one host, of Debian's packages slurm-wlm and munge: cluster.sh up|down <folder>
# Its files, sockets and ports are its own, so that it needs no system service and leaves another Slurm alone. The host
# claims four GPUs and much memory, which nothing uses, so that commands written for a real cluster are accepted as they are.
set -euo pipefail
action=$1 folder=$(realpath -m "$2")
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin

configure() {
  local base=$((20000 + RANDOM % 10000)) host
  host=$(hostname -s)
  mkdir -p "$folder"/{munge,state,spool}
  chmod 700 "$folder/munge"
  (umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
  printf 'Name=gpu File=/dev/%s\n' null zero full random >"$folder/gres.conf"  # any devices
  echo 'IgnoreSystemd=yes' >"$folder/cgroup.conf"
  cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$base
SlurmdPort=$((base + 1))
AuthType=auth/munge
# cred_expire is also how long a requeued job waits, 120 s by default
AuthInfo=socket=$folder/munge/socket,cred_expire=5
KillWait=1
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
}

up() {
  configure
  munged --socket="$folder/munge/socket" --key-file="$folder/munge/key" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --force
  slurmctld -c
  slurmd -N "$(hostname -s)"
  for _ in $(seq 100); do
    sinfo --noheader --format=%t 2>/dev/null | grep -qx idle && return
    sleep 0.2
  done
  tail -n 20 "$folder"/*.log >&2
  return 1
}

down() {
  scancel --quiet --user="$(id -un)" || true
  for _ in $(seq 50); do
    [ -n "$(squeue --noheader)" ] || break
    sleep 0.2
  done
  for pid in slurmd.pid slurmctld.pid munge/pid; do
    [ ! -s "$folder/$pid" ] || kill "$(cat "$folder/$pid")" || true
  done
}

$action
