#!/usr/bin/env bash
# Install the package and its development tools: install.sh <python of a virtual environment>
# [<another Python, whose pip is used where the first has none>]
# On Linux x86-64 with the versions of Python whose files requirements/ has the hashes of, every file is
# checked against its hash, and nothing but those files is fetched. Elsewhere the versions are the
# same where they fit, and pip chooses the files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1
has_pip=${2:-$1}
pip() { "$has_pip" -m pip --python "$python" --disable-pip-version-check --no-input install -qq "$@"; }

case $("$python" -c 'import platform, sys; print(*sys.version_info[:2], sys.platform, platform.machine())') in
"3 11 linux x86_64" | "3 12 linux x86_64" | "3 13 linux x86_64")
    pip --require-hashes --no-deps -r requirements/build.txt
    pip --require-hashes --no-deps --no-build-isolation -r requirements/dev.txt
    pip --no-deps --no-build-isolation -e .
    ;;
*)
    versions=$(mktemp)
    trap 'rm -f "$versions"' EXIT
    "$python" tools/lock.py --names requirements/build.txt >"$versions"
    "$python" tools/lock.py --names requirements/dev.txt >>"$versions"
    pip -c "$versions" -e '.[dev]'
    ;;
esac
