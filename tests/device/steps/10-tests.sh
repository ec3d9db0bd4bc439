#!/bin/bash
# Every test of the GPU floor. Prints what failed or was skipped, and the count.
gpu_test --gtest_brief=1
