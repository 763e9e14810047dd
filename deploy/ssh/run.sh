#!/bin/bash
# Runs a command on rented machines that have datasync: warms the dataset there first. Arguments: USER@HOST, 1 of them.
# Identity and credentials are taken from here, kept there in a private directory and removed when the command has ended.
set -euo pipefail
if (( $# != 1 )); then
  echo "usage: $0 USER@HOST (1 of them)" >&2
  exit 2
fi
identity=${DATASYNC_IDENTITY:-$HOME/.config/datasync/identity}
master=${1#*@}
remote='bash -c '"'"'set -eu
folder=$1
trap '"'"'"'"'"'"'"'"'rm -rf -- "$folder"'"'"'"'"'"'"'"'"' EXIT
. "$folder/credentials"
export DATASYNC_IDENTITY="$folder/identity" NODE_RANK="$2" MASTER_ADDR="$3" MASTER_PORT="${MASTER_PORT:-29500}"
export DATASYNC_REPOSITORY='"'"'"'"'"'"'"'"'s3://acme-datasets/ds?region=eu-central-1'"'"'"'"'"'"'"'"'
export DATASYNC_TRUST='"'"'"'"'"'"'"'"'<DATASET-ID>'"'"'"'"'"'"'"'"'
datasync run --data imagenet:prod -- bash -c '"'"'"'"'"'"'"'"'python train.py'"'"'"'"'"'"'"'"'
'"'"' job'

credentials() {
  for name in AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN; do
    if [[ -v $name ]]; then printf 'export %s=%q\n' "$name" "${!name}"; fi
  done
}

start() {
  local host=$1 rank=$2 folder
  folder=$(ssh -- "$host" 'umask 077 && mktemp -d')
  if [[ ! $folder =~ ^/[A-Za-z0-9._/-]+$ ]]; then
    echo "$host: expected the path of a new directory, found: $folder" >&2
    return 1
  fi
  ssh -- "$host" "umask 077 && cat > $folder/identity" < "$identity"
  credentials | ssh -- "$host" "umask 077 && cat > $folder/credentials"
  ssh -tt -- "$host" "$remote $folder $rank $(printf %q "$master")"  # -tt: it ends when this connection ends
}

if (( $# == 1 )); then
  start "$1" 0
  exit
fi
trap 'trap - TERM; kill -TERM 0' INT  # what runs in the background does not hear Ctrl-C
rank=0
tasks=()
for host; do
  start "$host" "$rank" &
  tasks+=($!)
  rank=$((rank + 1))
done
code=0
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "$code"
