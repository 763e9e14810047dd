#!/bin/bash
#SBATCH --job-name=datasync-imagenet
#SBATCH --nodes=2
# Warms the dataset once on each node; then `datasync run` wraps every task: it sets DATASYNC_DATASET_IMAGENET,
# holds a lease while the task runs and passes signals on.
# Credentials come from the environment of `sbatch`, or from files in the home directory; none is in this file.
set -euo pipefail
export DATASYNC_REPOSITORY='s3://acme-datasets/ds?region=eu-central-1'
export DATASYNC_TRUST='<DATASET-ID>'
export DATASYNC_CACHE=/mnt/nvme/datasync
export JOB_REFERENCE=imagenet:prod
export JOB_COMMAND='python train.py'

# One process on each node fetches, before any rank waits for another.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 datasync warm "$JOB_REFERENCE"

srun datasync run --quiet --data "$JOB_REFERENCE" -- bash -c "$JOB_COMMAND"
