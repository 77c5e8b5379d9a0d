#!/bin/sh
# validation/peers/sitting.sh: parts of it on the CPU print their tables; what fails is listed, and
# the rest follows. Figures mean nothing here. PyTorch's rows are there where it is.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
need_mpirun
export NARROWS SMOKE=1 ROUNDS=1
sitting=$SOURCE/validation/peers/sitting.sh

# sit WORDS...: the script with these settings; fills out, err and status.
sit() {
    status=0
    env OUT="$dir/sitting" "$@" "$sitting" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
}

# rows N REGEX: N lines of the output look like it.
rows() {
    same "$1 rows of $2" "$(grep -cE "$2" "$dir/out" || true)" "$1"
}

# Lines as llama_gpu.py prints them, where there is no PyTorch to print them.
cat >"$dir/python" <<'END'
#!/bin/sh
case "$*" in
*' step '*) echo "$4: 258.7 ms (best 256.0, worst 260.1), 63332 tokens/s, 525.1 TFLOP/s" ;;
*' stack '*)
    for s in full vanilla btp; do
        echo "d4096 L4 b4 r1024 $s                 35.50 ms,    8.88 a layer,    9231 tokens/s"
    done
    ;;
esac
END
chmod +x "$dir/python"

sit PARTS="kernels step slow" PYTHON="$dir/python"
same "three parts end well" "$status" 0
expect "the tables are kept" cmp -s "$dir/out" "$dir/sitting/sitting.md"
rows 19 '^\| [a-z_, ]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ % \|$'
rows 2 '^\| narrows 1 \| full rank \|( [0-9.]+x? \|){8}$'
rows 2 '^\| narrows 1 \| (cola|svd) \|( [0-9.]+x? \|){8}$'
rows 3 '^\| narrows 1 \| (cola|svd) (vanilla|btp) \|( [0-9.]+x? \|){8}$'
rows 4 '^\| narrows 1 \| [a-z ]+ \|( [0-9.]+x? \|){4}( [0-9.]+, [0-9.]+ \|){3}$'
rows 3 '^\| PyTorch 1 \| (full|cola|svd) \| 258\.7 \|'
rows 3 '^\| PyTorch 1 \| (full|vanilla|btp) \| 35\.50 \|'
rows 1 '^0 runs failed'
for part in kernels step slow; do
    expect "a log of $part" grep -q '^== status 0 after' "$dir/sitting/$part.log"
done

sit PARTS="largest" PYTHON="$dir/python"
rows 10 '^\| (full|cola) (full|vanilla|btp) [a-z]+ \| [0-9]+ \| runs, [0-9]+ tok/s \|'

# A sanitizer that ends at once for one kind of operations, and leaves something behind for another.
mkdir "$dir/bin"
cat >"$dir/bin/compute-sanitizer" <<'END'
#!/bin/sh
case "$*" in
*racecheck*embed*) exit 9 ;;
*memcheck*rope*) setsid sleep 1000 & echo $! >"$STRAY" ;;
esac
echo "  add  f32  1e-8  2e-6  ok   y"
echo "========= ERROR SUMMARY: 0 errors"
END
chmod +x "$dir/bin/compute-sanitizer"
sit PARTS="sanitize" STRAY="$dir/stray" PATH="$dir/bin:$PATH" PYTHON="$dir/python"
same "a sanitizer's finding fails the sitting" "$status" 1
rows 33 '^\| (mem|race|sync)check, [a-z_]+ \| 0 errors  \| 1 \|$'
rows 1 '^- sanitize: racecheck, embed: == status 9$'
sleep 0.2
expect "it left something behind" test -s "$dir/stray"
same "what it left behind is ended" \
    "left: $(tr -d '\0' 2>/dev/null <"/proc/$(cat "$dir/stray")/cmdline" || true)" "left: "

sit PARTS="sanitize:0" PATH="$dir/bin:$PATH" PYTHON="$dir/python"
rows 34 '^- sanitize: (mem|race|sync)check, [a-z_]+: == no time left$'

sit PARTS="kernels:60 largest:60" NARROWS=/bin/false PYTHON=/bin/false
same "a program that fails fails the sitting" "$status" 1
rows 1 '^- kernels: kernels: status 1'
rows 1 '^- largest: plan: status 1'
sit PARTS="step:60" NARROWS=/bin/false PYTHON=/bin/false
rows 1 '^\| peer: no torch \|'
sit PARTS="kernels:0"
rows 1 '^- kernels: kernels: no time left$'
sit PARTS="kernels tables"
same "a part that is none" "$status" 2
sit OUT=
same "no folder" "$status" 2
finish
