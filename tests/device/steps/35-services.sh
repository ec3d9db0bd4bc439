#!/bin/bash
# Memory of the GPU through whole services: ownership, order with kernels, refusals, quiet.
gpu_service_test --gtest_brief=1
