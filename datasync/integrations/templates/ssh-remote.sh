set -eu
folder=$1
trap 'rm -rf -- "$folder"' EXIT
. "$folder/credentials"
export DATASYNC_IDENTITY="$folder/identity" NODE_RANK="$2" MASTER_ADDR="$3" MASTER_PORT="${MASTER_PORT:-29500}"
@exports@
datasync run --data @reference@ -- bash -c @command@
