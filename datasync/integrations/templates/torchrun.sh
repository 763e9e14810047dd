#!/bin/bash
# Warms the dataset before any process group exists, then starts one process per GPU, each with @path_variable@.
set -euo pipefail
@exports@
exec datasync run --data @reference@ -- torchrun @rendezvous@ --nproc-per-node auto @words@
