#!/bin/sh
# narrows plan schedule: charts, bubbles, and what it refuses.
# shellcheck disable=SC1091,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
cd "$SOURCE" || exit 1

ends_well "a plain pipeline" 0 plan schedule --stages 4 --micro-batches 8
expect "its bubble: 9 of 33" grep -qx 'bubble  27.3 %' "$dir/out"
ends_well "virtual stages" 0 plan schedule -p 4 -m 8 --order interleaved -v 2
expect "their bubble: 4.5 of 28.5" grep -qx 'bubble  15.8 %' "$dir/out"
ends_well "zero bubble" 0 plan schedule -p 4 -m 8 --order zb-h1
expect "its bubble: 3 of 27" grep -qx 'bubble  11.1 %' "$dir/out"
expect "a row a stage" test "$(grep -c '^stage [0-3]  |' "$dir/out")" = 4
refused "an order that does not exist" 2 "2f2b & gpipe & zb-h1" 0 plan schedule --order 2f2b
refused "virtual stages of another order" 2 "virtual-stages 2 & interleaved" 0 plan schedule -v 2
refused "a number that does not go round" 2 "6 & 4 & micro-batches 8" 0 \
    plan schedule --order interleaved -v 2 -m 6
refused "a plan of something else" 2 "budget & schedule" 0 plan budget
finish
