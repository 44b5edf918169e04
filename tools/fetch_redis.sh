#!/usr/bin/env bash
# Fetch a private Redis on a Debian machine: fetch_redis.sh <folder> [8.6 | 7.0]
#
# 1. ask the machine's apt which repository it uses (no address is written here);
# 2. with an apt configuration of our own, download redis-server and all it needs;
# 3. unpack that into a root of its own, with wrappers that run it by that root's own loader,
#    because the package wants a newer libc than the machine has;
# 4. try it, then rename it into place.
set -euo pipefail

target=$1
wanted=${2:-8.6}
case $wanted in
    8.6) suites="experimental sid" ;;
    7.0) suites="bookworm" ;; # the oldest that we support
    *) echo "fetch_redis.sh knows no Redis $wanted" >&2; exit 2 ;;
esac
[[ $target == /* ]] || target=$PWD/$target
what="Redis $wanted"
hint="its tests will be skipped, see docs/how-to/servers.md"
. "${BASH_SOURCE[0]%/*}/private_apt.sh"

if [[ -x $target/bin/redis-server ]] && "$target/bin/redis-server" --version >/dev/null 2>&1; then
    exit 0
fi

prepare
echo "fetching Redis $wanted into ${target#"$PWD"/} ..."
download_from "$suites" "redis-server/${suites%% *}" "redis-tools/${suites%% *}"
for package in "$work"/cache/archives/*.deb; do
    unpack "$package"
done

# Keep the programs and their libraries only.
find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' -exec rm -rf {} +
find "$root/usr" -mindepth 1 -maxdepth 1 ! -name bin ! -name 'lib*' -exec rm -rf {} +
find "$root/usr/bin" -type f ! -name 'redis-*' -delete
find "$root" \( -name gconv -o -name systemd -o -name security \) -prune -exec rm -rf {} +

loader=$(cd "$root" && find . -name 'ld-linux*.so.*' -type f | head -n 1)
[[ -n $loader ]] || give_up "the downloaded libc has no loader"
# Older releases have some of them in /lib, beside the loader, and some in /usr/lib.
beside=$(dirname "${loader#./}")
libraries="\$root/$beside:\$root/usr/${beside#usr/}"
for program in redis-server redis-cli; do
    cat >"$work/bin/$program" <<EOF
#!/bin/sh
# Run $program by the loader and the libraries it came with.
root=\$(dirname "\$(readlink -f "\$0")")/../root
exec "\$root/$loader" --argv0 $program --library-path "$libraries" "\$root/usr/bin/$program" "\$@"
EOF
    chmod +x "$work/bin/$program"
done

version=$("$work/bin/redis-server" --version 2>>"$log") || give_up "the downloaded program does not run here"
into_place redis-server
echo "$version" | awk '{ print "got Redis", substr($3, 3) }'
