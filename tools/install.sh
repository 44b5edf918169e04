#!/usr/bin/env bash
# Install the package and its development tools: install.sh <python of a virtual environment>
# On Linux x86-64 with Python 3.11, which requirements/ was written with, every file is checked
# against its hash, and nothing but those files is fetched. Elsewhere the versions are the same where
# they fit, and pip chooses the files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
pip() { "$python" -m pip --disable-pip-version-check --no-input install -qq "$@"; }

if [[ $("$python" -c 'import platform, sys; print(*sys.version_info[:2], sys.platform, platform.machine())') == "3 11 linux x86_64" ]]; then
    pip --require-hashes --no-deps -r requirements/build.txt
    pip --require-hashes --no-deps --no-build-isolation -r requirements/dev.txt
    pip --no-deps --no-build-isolation -e .
else
    versions=$(mktemp)
    trap 'rm -f "$versions"' EXIT
    "$python" tools/lock.py --names requirements/build.txt >"$versions"
    "$python" tools/lock.py --names requirements/dev.txt >>"$versions"
    pip -c "$versions" -e '.[dev]'
fi
