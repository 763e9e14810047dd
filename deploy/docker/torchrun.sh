#!/bin/bash
# Warms the dataset before any process group exists, then starts one process per GPU, each with DATASYNC_DATASET_IMAGENET.
set -euo pipefail
export DATASYNC_REPOSITORY='s3://acme-datasets/ds?region=eu-central-1'
export DATASYNC_TRUST='<DATASET-ID>'
exec datasync run --data imagenet:prod -- torchrun --standalone --nproc-per-node auto train.py
