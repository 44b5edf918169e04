#!/usr/bin/env bash
# Fetch a private Python on a Debian machine: fetch_python.sh <folder> [3.13]
#
# 1. with the repository of the machine's apt (no address is written here) and an apt configuration
#    of our own, download the interpreter, its standard library and all they need, from a newer
#    release than the machine's;
# 2. unpack that into a root of its own, with a wrapper that runs it by that root's own loader,
#    because the packages want a newer libc than the machine has;
# 3. try it, then rename it into place.
#
# The wrapper passes on the name it was called by, so sys.executable is the wrapper, and a virtual
# environment whose bin/python points to it works: its scripts, and programs that start themselves
# again. `<folder>/bin/python3.13 -m venv --without-pip` makes one; `pip --python` fills it.
set -euo pipefail

target=$1
wanted=${2:-3.13}
case $wanted in
    3.13) suite="trixie" ;;
    *) echo "fetch_python.sh knows no Python $wanted" >&2; exit 2 ;;
esac
[[ $target == /* ]] || target=$PWD/$target
program=python$wanted
what="Python $wanted"
hint="the tests cannot run on it"
. "${BASH_SOURCE[0]%/*}/private_apt.sh"

runs() {
    [[ $("$1" -I -c 'import ctypes, sqlite3, ssl, sys; print(sys.executable)' 2>>"${log:-/dev/null}") == "$1" ]]
}

if [[ -x $target/bin/$program ]] && runs "$target/bin/$program"; then
    exit 0
fi

prepare
echo "fetching Python $wanted into ${target#"$PWD"/} ..."
download_from "$suite" "$program" libstdc++6 # which many compiled wheels expect
for package in "$work"/cache/archives/*.deb; do
    unpack "$package"
done

# Keep the interpreter, its standard library and the shared libraries only.
find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' -exec rm -rf {} +
find "$root/usr" -mindepth 1 -maxdepth 1 ! -name bin ! -name 'lib*' -exec rm -rf {} +
find "$root/usr/bin" -mindepth 1 ! -name "$program" -delete
find "$root/usr/lib" \( -name gconv -o -name systemd -o -name python3 \) -prune -exec rm -rf {} +

loader=$(cd "$root" && find . -name 'ld-linux*.so.*' -type f | head -n 1)
[[ -n $loader ]] || give_up "the downloaded libc has no loader"
loader=${loader#./}
cat >"$work/bin/$program" <<EOF
#!/bin/sh
# Run Python by the loader and the libraries it came with, under the name it was called by.
here=\$(/usr/bin/readlink -f "\$0")
root=\${here%/bin/*}/root
exec "\$root/$loader" --argv0 "\$0" --library-path "\$root/${loader%/*}" "\$root/usr/bin/$program" "\$@"
EOF
chmod +x "$work/bin/$program"
# Python looks for its standard library here, beginning at the folder of its program.
mkdir "$work/lib"
ln -s "../root/usr/lib/$program" "$work/lib/$program"

runs "$work/bin/$program" || give_up "the downloaded program does not run here"
version=$("$work/bin/$program" -c 'import platform; print(platform.python_version())')
into_place "$program"
echo "got Python $version"
