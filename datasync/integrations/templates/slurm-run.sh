#!/bin/bash
#SBATCH --job-name=@label@
#SBATCH --nodes=@nodes@
# Warms the dataset once on each node; then `datasync run` wraps every task: it sets @path_variable@,
# holds a lease while the task runs and passes signals on.
# Credentials come from the environment of `sbatch`, or from files in the home directory; none is in this file.
set -euo pipefail
@exports@
export JOB_REFERENCE=@reference@
export JOB_COMMAND=@command@

# One process on each node fetches, before any rank waits for another.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 datasync warm "$JOB_REFERENCE"

srun datasync run --quiet --data "$JOB_REFERENCE" -- bash -c "$JOB_COMMAND"
