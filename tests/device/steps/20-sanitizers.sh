#!/bin/bash
# compute-sanitizer over the kernels: accesses outside memory, and races in shared memory.
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "skipped: no compute-sanitizer on this machine"; exit 0; }
status=0
# Not the tests with a second process: one faults on purpose, and the checker takes memory that was
# opened twice for gone when it is closed once. Errors of the driver's functions are asked for.
timeout 100 "$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 9 \
  "$(command -v gpu_test)" --gtest_brief=1 --gtest_filter='-*OtherProcess*:*AnotherProcess*' || status=1
timeout 60 "$sanitizer" --tool racecheck --error-exitcode 9 "$(command -v gpu_test)" \
  --gtest_brief=1 --gtest_filter='GpuPattern.*:PlanCopy.Rows*:CopyInPlace.*' || status=1
exit $status
