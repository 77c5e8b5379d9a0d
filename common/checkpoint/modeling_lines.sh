#!/bin/sh
# Writes modeling_lines.def, the lines of modeling_narrows.py as C strings.
set -eu
cd "$(dirname -- "$0")"
sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n",/' modeling_narrows.py \
    >modeling_lines.def
