#!/bin/bash
# What the copy kernel reaches beside the driver's own copies.
gpu_bench --json "$RESULTS/kernels.json"
