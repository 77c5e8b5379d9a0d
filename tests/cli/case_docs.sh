#!/bin/sh
# Row L11 of tests/CASES.md: options that a document names and the program does not know, and the
# other way round. Read from the documents themselves. Run with --write it writes docs/commands.md.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh sets dir, text, reads status
. "$SOURCE/tests/cli/lib.sh"
export OMPI_MCA_ess_singleton_isolated=1
cd "$SOURCE" || exit 1
docs=$(find README.md CONTRIBUTING.md NEWS.md quickstart docs examples -type f \
    \( -name '*.md' -o -name '*.yaml' -o -name quickstart \) ! -path 'docs/decisions/*')

# listed WHAT FILE FILE: fails with the lines of the first that the second lacks.
listed() {
    sort -u "$2" >"$dir/a"
    sort -u "$3" >"$dir/b"
    missing=$(comm -23 "$dir/a" "$dir/b" | tr '\n' ' ')
    : >"$dir/out"
    : >"$dir/err"
    if [ ! -s "$dir/a" ]; then
        not_ok "$1" "nothing to compare"
    elif [ -n "$missing" ]; then
        not_ok "$1" "missing: $missing"
    else
        ok "$1"
    fi
}

# Keys
plain "$dir/t.yaml"
direct train "$dir/t.yaml" --print-config
sed -n 's/^\([a-z]*\.[a-z0-9_]*\) = .*/\1/p' "$dir/out" >"$dir/keys"
# File names and tensors look like keys.
other='\.(log|txt|safetensors|yaml|json|jsonl|md|c|h|py|norm|embed_tokens|layers\.)'
sections=$(cut -d . -f 1 "$dir/keys" | sort -u | paste -sd '|')
# shellcheck disable=SC2086 # a list of files
grep -ohE "(^|[^a-zA-Z0-9_./-])($sections)\.[a-z][a-z0-9_]*(\.?[a-zA-Z0-9_/]*)" \
    $docs | sed 's/^[^a-z]//; s/[.]$//' | grep -vE "$other" >"$dir/named"
listed "L11 every key that a document names exists" "$dir/named" "$dir/keys"
cp docs/config.md "$dir/config.md"
awk -F'`' '/^## / { s = substr($0, 4) } /^\| `/ { print s "." $2 }' "$dir/config.md" >"$dir/documented"
listed "L11 every key is in docs/config.md" "$dir/keys" "$dir/documented"
listed "L11 docs/config.md has no other key" "$dir/documented" "$dir/keys"
direct config
same "L11 docs/config.md is what narrows config writes" "$(cat "$dir/out")" "$(cat docs/config.md)"

# Commands; "narrows" is the example below them. What one starts by itself is not for users.
"$NARROWS" help | sed -n 's/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p' | grep -vx narrows >"$dir/commands"
# shellcheck disable=SC2086
grep -ohE '(`|^ *|mpirun [^`]*|build/)narrows [a-z][a-z-]*( [^ ]|`|$)' $docs |
    sed 's/.*narrows \([a-z-]*\).*/\1/' | grep -vxE 'pre-trains|needs|then|is|and' \
    >"$dir/named"
echo help >>"$dir/commands"
listed "L11 every command that a document names exists" "$dir/named" "$dir/commands"
grep -vx 'validate-job\|help' "$dir/commands" >"$dir/public"
listed "L11 every command is named in a document" "$dir/public" "$dir/named"

# A command may have verbs, which its help lists: "data prepare".
while read -r command; do
    echo "$command"
    [ "$command" = help ] || "$NARROWS" "$command" --help |
        sed -n "/^usage: .* VERB/,\$s/^  \([a-z][a-z-]*\)  *[a-z].*/$command \1/p"
done <"$dir/commands" >"$dir/calls"

# Options
: >"$dir/options"
while read -r command; do
    [ "$command" != help ] || continue
    # shellcheck disable=SC2086 # a command and a verb
    direct $command --help
    sed -n 's/^  \(-., \|    \)\{0,1\}\(--[a-z][a-z-]*\).*/\2/p' "$dir/out" >>"$dir/options"
done <"$dir/calls"
# Of mpirun, configure, autoreconf, make, git and Slurm.
foreign='--(no-install-recommends|oversubscribe|bind-to|allow-run-as-root|install|map-by|report-bindings|host|hostfile|mpi|nodes|ntasks-per-node|open-mode|signal|enable-[a-z-]*|with-[a-z-]*|without-[a-z-]*|disable-[a-z-]*)'
# shellcheck disable=SC2086
grep -ohE '(^|[` (])--[a-z][a-z-]+' $docs | sed 's/^[` (]//' | grep -vxE -e "$foreign" |
    grep -vx -e '--version' >"$dir/named"
# Documents name those of the peers' and witnesses' programs too.
grep -ohE '"--[a-z][a-z-]+"' validation/peers/*.py validation/witness/*.py | tr -d '"' |
    cat - "$dir/options" >"$dir/known"
listed "L11 every option that a document names exists" "$dir/named" "$dir/known"
grep -vx -e --help "$dir/options" >"$dir/public"
listed "L11 every option is named in a document" "$dir/public" "$dir/named"

# docs/commands.md holds the help of every command as it is printed.
commands_md() {
    printf '# Commands\n\n<!-- Written from `narrows COMMAND --help` by tests/cli/case_docs.sh. -->\n'
    grep -vx 'validate-job\|help' "$dir/calls" | while read -r command; do
        printf '\n## narrows %s\n\n```\n' "$command"
        # shellcheck disable=SC2086 # a command and a verb
        "$NARROWS" $command --help
        printf '```\n'
    done
}
if [ "${1:-}" = --write ]; then
    commands_md >docs/commands.md
fi
same "L11 docs/commands.md is what the commands print" "$(commands_md)" "$(cat docs/commands.md)"
finish
