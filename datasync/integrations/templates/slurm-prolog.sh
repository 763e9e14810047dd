#!/bin/bash
#SBATCH --job-name=@label@
#SBATCH --nodes=@nodes@
# Warms the dataset once on each node; then every task of the job finds it in @path_variable@.
# Credentials come from the environment of `sbatch`, or from files in the home directory; none is in this file.
set -euo pipefail
@exports@
export JOB_REFERENCE=@reference@
export JOB_COMMAND=@command@

# One process on each node fetches, before any rank waits for another.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 datasync warm "$JOB_REFERENCE"

# Slurm reads what a task prolog prints: `export NAME=value` becomes a variable of the task, `print …` goes to its output.
prolog=$(mktemp "$SLURM_SUBMIT_DIR/.datasync-prolog-XXXXXXXX")  # a directory that all nodes see
trap 'rm -f -- "$prolog"' EXIT
cat > "$prolog" <<'PROLOG'
#!/bin/bash
exec datasync run --quiet --data "$JOB_REFERENCE" -- sh -c '
  echo "export @path_variable@=$@path_variable@"
  echo "export @snapshot_variable@=$@snapshot_variable@"' || echo "print datasync: this task has no dataset"
PROLOG
chmod 700 "$prolog"
srun --task-prolog="$prolog" bash -c ': "${@path_variable@:?the task prolog did not set it}"; exec bash -c "$JOB_COMMAND"'
