#!/usr/bin/env bash
# Pin what `pip install .[dev]` gives today: lock.sh <python> <output file>
# Names and versions only, so the file is good with any package index.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 output=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check install -qq -e '.[dev]'
{
    echo "# Exact versions for development and CI. Written by \`make lock\`; do not edit."
    "$work/venv/bin/python" -m pip --disable-pip-version-check list --format=freeze --exclude-editable |
        grep -Eiv '^(pip|setuptools|wheel)=='
} >"$work/lock"
mkdir -p "$(dirname "$output")"
cp "$work/lock" "$output"
echo "wrote $output: $(grep -c == "$output") versions"
