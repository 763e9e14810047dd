#!/bin/bash
#SBATCH --job-name=datasync-imagenet
#SBATCH --nodes=2
# Warms the dataset once on each node; then every task of the job finds it in DATASYNC_DATASET_IMAGENET.
# Credentials come from the environment of `sbatch`, or from files in the home directory; none is in this file.
set -euo pipefail
export DATASYNC_REPOSITORY='s3://acme-datasets/ds?region=eu-central-1'
export DATASYNC_TRUST='<DATASET-ID>'
export DATASYNC_CACHE=/mnt/nvme/datasync
export JOB_REFERENCE=imagenet:prod
export JOB_COMMAND='python train.py'

# One process on each node fetches, before any rank waits for another.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 datasync warm "$JOB_REFERENCE"

# Slurm reads what a task prolog prints: `export NAME=value` becomes a variable of the task, `print …` goes to its output.
prolog=$(mktemp "$SLURM_SUBMIT_DIR/.datasync-prolog-XXXXXXXX")  # a directory that all nodes see
trap 'rm -f -- "$prolog"' EXIT
cat > "$prolog" <<'PROLOG'
#!/bin/bash
exec datasync run --quiet --data "$JOB_REFERENCE" -- sh -c '
  echo "export DATASYNC_DATASET_IMAGENET=$DATASYNC_DATASET_IMAGENET"
  echo "export DATASYNC_SNAPSHOT_IMAGENET=$DATASYNC_SNAPSHOT_IMAGENET"' || echo "print datasync: this task has no dataset"
PROLOG
chmod 700 "$prolog"
srun --task-prolog="$prolog" bash -c ': "${DATASYNC_DATASET_IMAGENET:?the task prolog did not set it}"; exec bash -c "$JOB_COMMAND"'
