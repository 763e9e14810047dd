#!/bin/bash
# Runs a command in a container that warms the dataset first and keeps it on the host for the next one.
# Credentials are passed on from this environment by their names; none is in this file.
set -euo pipefail
identity=${DATASYNC_IDENTITY:-$HOME/.config/datasync/identity}
cache=/mnt/nvme/datasync
mkdir -p -- "$cache"
exec docker run --rm --init --gpus all --ipc host --user "$(id -u):$(id -g)" \
  --mount "type=bind,source=$cache,target=/datasync" \
  --mount "type=bind,source=$identity,target=/run/secrets/datasync/identity,readonly" \
  --env HOME=/datasync --env XDG_STATE_HOME=/datasync/state --env XDG_DATA_HOME=/datasync/data \
  --env DATASYNC_CACHE=/datasync/cache --env DATASYNC_IDENTITY=/run/secrets/datasync/identity \
  --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY --env AWS_SESSION_TOKEN \
  --env 'DATASYNC_REPOSITORY=s3://acme-datasets/ds?region=eu-central-1' \
  --env 'DATASYNC_TRUST=<DATASET-ID>' \
  gpu-datasync:0.1.0 datasync run --data imagenet:prod -- bash -c 'python train.py'
