#!/bin/sh
# Row N34 of tests/CASES.md: ranks on two nodes, which are this machine twice: mpirun starts a daemon
# for each through a shell in place of ssh, and they talk over the loopback device.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text; the ranks' shells expand
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
t=$dir/t.yaml
plain "$t"
cat >"$dir/rsh" <<'END'
#!/bin/sh
# rsh [OPTIONS] HOST COMMAND: here, with a folder of its own for the daemon's files
while [ "${1#-}" != "$1" ]; do shift; done
TMPDIR=$dir/node.$1
export TMPDIR
mkdir -p "$TMPDIR"
shift
exec sh -c "$*"
END
chmod +x "$dir/rsh"

# on_two WORDS...: four ranks dealt round over two nodes run the words.
on_two() {
    code=0
    timeout -k 5 "$LIMIT" "$MPIRUN" --mca plm_rsh_agent "$dir/rsh" --mca btl self,tcp \
        --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo -H nodea:2,nodeb:2 --map-by node \
        --bind-to none -n 4 "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
}
on_two sh -c 'echo "$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_LOCAL_RANK"'
if [ "$code" -ne 0 ] || [ "$(sort "$dir/out" | tr '\n' ' ')" != "0 0 1 0 2 1 3 1 " ]; then
    echo "skipped: this mpirun does not start two daemons on one machine"
    exit 77
fi

# trained WHAT WORDS...: three steps on two nodes.
trained() {
    run=$1
    shift
    on_two "$NARROWS" train "$t" train.steps=3 run.hash=on parallel.tp=2 train.micro_batch=1 "$@"
    same "$run" "$code" 0
}
tokens() { sed -n 's/.*"tokens":\([0-9]*\).*/\1/p' "$dir/run/metrics.jsonl" | tr '\n' ' '; }

ends_well "four ranks on one node" 4 train "$t" train.steps=3 run.hash=on parallel.tp=2 \
    train.micro_batch=1
one=$(hashes)
expect "one node is said" grep -q 'ranks of mpirun are 0 1 2 3  (1 node)' "$dir/out"
same "tokens of a step" "$(tokens)" "256 256 256 "
trained "four ranks on two nodes"
same "two nodes: the same bits" "$(hashes)" "$one"
same "two nodes: as many tokens a step" "$(tokens)" "256 256 256 "
expect "tensor parallelism within a node" grep -qF 'ranks of mpirun are 0 2 | 1 3  (2 nodes' "$dir/out"
expect "without a warning" test ! -s "$dir/err"
trained "counted as mpirun does" parallel.placement=rank
same "counted otherwise: the same bits" "$(hashes)" "$one"
expect "the order is said" grep -qF 'ranks of mpirun are 0 | 1 | 2 | 3  (2 nodes' "$dir/out"
expect "and that groups span nodes" grep -q \
    '^warning: 2 of 2 tensor-parallel groups .* set parallel.placement=node$' "$dir/err"
finish
