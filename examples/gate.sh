#!/bin/sh
# Gate for a training job: follow all checkpoints, and stop if a head of the last one does not differ from random heads.
#
#     sh examples/gate.sh RUN LAST_STEP
#
# RUN is a folder of checkpoints (step-N or checkpoint-N), LAST_STEP the number of the last step.

run=$1
last=$2

rmtbase --quiet --json trajectory "$run" --matrices none -o gate.nc \
    --fail-if "step == $last and not differs" > gate.json
status=$?

case $status in
    0) echo "passed: every head differs from random heads at step $last" ;;
    1) echo "undecided: a checkpoint is missing or damaged, see gate.json" ;;
    2) echo "undecided: an error, such as no checkpoint of step $last" ;;
    3) echo "failed: a head does not differ from random heads at step $last" ;;
    4) echo "undecided: a head could not be tested at step $last" ;;
    *) echo "failed: rmtbase ended with status $status" ;;
esac
exit $status
