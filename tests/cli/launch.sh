#!/bin/sh
# narrows launch: what it refuses, what ranks get, how jobs end: well, badly, by a signal, by
# Ctrl-C, by a time limit, and when launch itself or a rank is gone.
# shellcheck disable=SC1091,SC2016,SC2154 # lib.sh sets dir, status; ranks' shells expand
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
unset OMP_NUM_THREADS OMPI_MCA_rmaps_base_oversubscribe OMPI_ALLOW_RUN_AS_ROOT \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

# launch WORDS...: as `direct launch`, but 124 and 137 are statuses like others.
launch() {
    status=0
    timeout -k 5 "$LIMIT" "$NARROWS" launch "$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
}

# launched WHAT STATUS PATTERNS WORDS...: the job's status, and a message of launch itself that
# matches each pattern; PATTERNS "" = no message.
launched() {
    what=$1 want=$2 patterns=$3
    shift 3
    launch "$@"
    if [ -n "$patterns" ]; then
        check_refusal "$what" "$want" "$patterns"
    elif [ "$status" != "$want" ]; then
        not_ok "$what" "status $status, not $want"
    elif [ -s "$dir/err" ]; then
        not_ok "$what" "something on the error stream: $(head -n 1 "$dir/err")"
    else
        ok "$what"
    fi
}

has() { expect "$1" grep -qE -e "$2" "$dir/$3"; }

# until_there FILES...: waits until they exist.
until_there() {
    for file in "$@"; do
        tries=0
        until [ -e "$file" ] || [ "$tries" -ge 300 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
    done
}

# gone PIDS...: whether all of them end.
gone() {
    for one in "$@"; do
        tries=0
        while kill -0 "$one" 2>/dev/null; do
            # What nobody has waited for is as good as gone.
            case $(sed 's/.*) //' "/proc/$one/stat" 2>/dev/null) in Z*) break ;; esac
            sleep 0.1
            tries=$((tries + 1))
            [ "$tries" -lt 200 ] || return 1
        done
    done
}

# background WORDS...: launch in the background, as $pid.
background() {
    rm -f "$dir"/ready.* "$dir"/asked.*
    "$NARROWS" launch "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
}

ends() {
    code=0
    wait "$pid" || code=$?
}

# Command line
launched "help" 0 "" --help
has "help names the options" "--timeout S" out
launched "no number of ranks" 2 "how many ranks & launch -n 2" -- help
launched "0 ranks" 2 "ranks & 0 & from 1 to" -n 0 -- help
launched "-3 ranks" 2 "ranks & -3" -n -3 -- help
launched "two ranks in words" 2 "ranks & two & whole number" -n two -- help
launched "100000 ranks" 2 "ranks & 100000 & 1024" -n 100000 -- help
launched "nothing to run" 2 "nothing to run & train" -n 2
launched "nothing behind --" 2 "nothing to run" -n 2 --
launched "--bind x" 2 "--bind x & core or none" -n 2 --bind x -- help
launched "more cores than there are" 2 "--bind core & 4096 threads & --bind none" \
    -n 2 --threads 4096 --bind core -- help
launched "no such program" 2 "$dir/none" -n 2 --program "$dir/none" -- x
launched "unknown option" 2 "--tiemout & --timeout" -n 2 --tiemout 3 -- help
PMIX_RANK=0 launched "inside a job" 2 "inside an MPI job" -n 2 -- help
(
    PATH=$dir
    export PATH
    exec "$NARROWS" launch -n 2 -- help
) >"$dir/out" 2>"$dir/err" || status=$?
check_refusal "no mpirun" "$status" "no mpirun & openmpi-bin"
same "no mpirun: status" "$status" 8

# What ranks get
launched "two ranks of narrows itself" 0 "" -n 2 -- --version
same "both say their version" "$(grep -c '^narrows ' "$dir/out")" 2
unset OMP_WAIT_POLICY
launched "environment" 0 "" -n 3 --threads 4096 --program sh -- -c \
    'echo "$OMPI_COMM_WORLD_SIZE $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $OMP_WAIT_POLICY $1"' x 'a b'
same "size, threads, arguments" "$(sort -u "$dir/out")" "3 4096 1 passive a b"
launched "threads with a core each" 0 "" -n 1 --threads 1 --program sh -- -c 'echo "[$OMP_WAIT_POLICY]"'
same "they may spin" "$(cat "$dir/out")" "[]"
OMP_WAIT_POLICY=active launched "the user's way to wait" 0 "" -n 3 --threads 4096 --program sh -- \
    -c 'echo "$OMP_WAIT_POLICY"'
same "is passed on" "$(sort -u "$dir/out")" active
OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY
# P01: ranks that each take all cores. Unasked, their threads are no more than the cores, or one.
for ranks in 1 2 3 20; do
    launched "P01 threads of $ranks ranks" 0 "" -n $ranks --program sh -- -c 'echo "$OMP_NUM_THREADS"'
    expect "P01 $ranks ranks on $(nproc) processors" awk -v ranks=$ranks -v have="$(nproc)" '
        !/^[0-9]+$/ || $1 < 1 || ($1 > 1 && $1 * ranks > have) { bad = 1 }
        END { exit bad || NR != ranks }' "$dir/out"
done
plain "$dir/t.yaml"
launched "threads of a training" 0 "" -n 1 --threads 3 -- train "$dir/t.yaml" train.steps=1
has "--threads reaches the training" '^device .* 3 thread\(s\) a rank' out
OMP_NUM_THREADS=7 launched "threads of the environment" 0 "" -n 1 --program sh -- -c \
    'echo "$OMP_NUM_THREADS"; cat'
same "threads of the environment, no input" "$(cat "$dir/out")" 7
# Some containers forbid to bind; mpirun then warns by itself.
bound=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    "$MPIRUN" -n 1 --bind-to core true 2>&1 </dev/null) || bound="status $?"
if [ -z "$bound" ]; then
    launched "bound" 0 "" -n 1 --threads 1 --bind core --program sh -- -c \
        'sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status'
    expect "one core (of two threads at most)" test "$(tr , '\n' <"$dir/out" | wc -l)" -le 2
else
    echo "skipped: mpirun cannot bind here: $bound"
fi
OMPI_MCA_btl_vader_single_copy_mechanism=cma launched "settings of the user" 0 "" -n 1 \
    --program sh -- -c 'echo "$OMPI_MCA_btl_vader_single_copy_mechanism"'
same "settings of the user stay" "$(cat "$dir/out")" cma

# How jobs end
launched "status of a rank" 7 "" -n 2 --program sh -- -c 'exit 7'
launched "what ranks say on the error stream" 0 "narrows: one" -n 1 --program sh -- -c \
    'echo ---- >&2; echo "narrows: one" >&2; printf "no end" >&2'
same "unchanged" "$(cat "$dir/err")" "----
narrows: one
no end"
launched "what only mpirun understands" 0 "" -n 1 --program sh -- -c 'echo "[vm:20207] [[8721,0],0] \
ORTE_ERROR_LOG: Data unpack would read past end of buffer in file orte/util/show_help.c \
at line 501" >&2'
launched "a rank that is killed before it is one" 137 "died from signal 9" -n 3 \
    --program sh -- -c 'echo $$ >"$1/ready.$OMPI_COMM_WORLD_RANK"
        until [ -e "$1/ready.0" ] && [ -e "$1/ready.1" ] && [ -e "$1/ready.2" ]; do sleep 0.1; done
        [ "$OMPI_COMM_WORLD_RANK" != 1 ] || kill -9 $$; exec sleep 100' x "$dir"
# shellcheck disable=SC2046 # numbers
expect "the others are ended" gone $(cat "$dir"/ready.*)
launched "time limit" 124 "after 2 s & --timeout" -n 2 --timeout 2 --program sleep -- 100

# Signals. Ranks that end in order; mpirun ends the others when the first one fails, so each waits
# until both were asked.
polite='asked() {
        echo asked
        : >"$1/asked.$OMPI_COMM_WORLD_RANK"
        until [ -e "$1/asked.0" ] && [ -e "$1/asked.1" ]; do sleep 0.1; done
        sleep 0.2
        exit 130
    }
    trap "asked \"$1\"" USR1
    echo $$ >"$1/ready.$OMPI_COMM_WORLD_RANK"
    while :; do sleep 0.1; done'
background -n 2 --program sh -- -c "$polite" x "$dir"
until_there "$dir/ready.0" "$dir/ready.1"
kill -TERM "$pid"
ends
same "asked to stop: status" "$code" 130
same "asked to stop: both ranks" "$(grep -c asked "$dir/out")" 2
same "asked to stop: one message" "$(messages)" 1

# Ranks that do not heed it: the second request ends them.
deaf='trap "" USR1 TERM INT
    echo $$ >"$1/ready.$OMPI_COMM_WORLD_RANK"
    while :; do sleep 0.1; done'
background -n 2 --program sh -- -c "$deaf" x "$dir"
until_there "$dir/ready.0" "$dir/ready.1"
kill -TERM "$pid"
sleep 1
expect "deaf ranks go on" kill -0 "$(cat "$dir/ready.0")" "$(cat "$dir/ready.1")" "$pid"
kill -TERM "$pid"
ends
expect "the second request ends the job" test "$code" -ne 0
expect "the second request ends the ranks" gone "$(cat "$dir/ready.0")" "$(cat "$dir/ready.1")"

# launch itself is killed.
background -n 2 --program sh -- -c "$polite" x "$dir"
until_there "$dir/ready.0" "$dir/ready.1"
kill -KILL "$pid"
ends
expect "ranks do not outlive launch" gone "$(cat "$dir/ready.0")" "$(cat "$dir/ready.1")"

# Real ranks: one is killed, crashes, is there but never comes; one message says so.
helper=$PWD/tests/mpi/test_host
if [ -x "$helper" ]; then
    launched "a rank that is killed" 137 "rank 2 on & signal 9 \(Killed\) & memory" -n 3 \
        --program "$helper" -- died 9
    expect "nobody goes on without it" test ! -s "$dir/out"
    launched "a rank that crashes" 139 "rank 1 on & signal 11 \(Segmentation" -n 2 \
        --program "$helper" -- died 11
    launch -n 3 --program "$helper" -- gone
    same "absent rank: status" "$status" 8
    same "absent rank: one message" "$(cat "$dir/err")" \
        "message: $(sed -n 's/^message: \(rank 2 did not come within 1 s.*\)/\1/p' "$dir/err")"
fi

finish
