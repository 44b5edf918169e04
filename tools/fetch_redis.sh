#!/usr/bin/env bash
# Fetch a private Redis 8.6 on a Debian machine: fetch_redis.sh <folder>
#
# 1. ask the machine's apt which repository it uses (no address is written here);
# 2. with an apt configuration of our own, download redis-server and all it needs;
# 3. unpack that into a root of its own, with wrappers that run it by that root's own loader,
#    because the package wants a newer libc than the machine has;
# 4. try it, then rename it into place.
#
# Needs no root and touches nothing outside the folder. Where it cannot work it says so in one
# line; that is an error only with CI=true, where the native server is required.
set -euo pipefail

target=$1
wanted=8.6
[[ $target == /* ]] || target=$PWD/$target

if [[ -x $target/bin/redis-server ]] && "$target/bin/redis-server" --version >/dev/null 2>&1; then
    exit 0
fi

give_up() {
    if [[ ${CI:-} == true ]]; then
        echo "no private Redis $wanted: $1; with CI=true it must be there" >&2
        exit 1
    fi
    echo "no private Redis $wanted: $1; its tests will be skipped, see docs/how-to/servers.md" >&2
    exit 0
}

for tool in apt-get dpkg; do
    command -v "$tool" >/dev/null || give_up "this machine has no $tool"
done

mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/fetch.log
root=$work/root
mkdir -p "$work"/{state/lists/partial,cache/archives/partial,log} "$root" "$work/bin"
: >"$work/status" # empty: no package counts as installed, so every dependency is fetched

repositories=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | awk '!seen[$0]++' || true)
[[ -n $repositories ]] || give_up "apt knows no repository"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
options=""
[[ -r $keyring ]] && options="[signed-by=$keyring] "

cat >"$work/apt.conf" <<EOF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
Dir::Log "$work/log";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
EOF
export APT_CONFIG=$work/apt.conf

download() {
    printf 'deb %s%s %s main\n' "$options" "$1" experimental "$options" "$1" sid >"$work/sources.list"
    apt-get -q update && apt-get -q install -y --download-only \
        redis-server/experimental redis-tools/experimental
}

echo "fetching Redis $wanted into ${target#"$PWD"/} ..."
fetched=no
for repository in $(head -n 4 <<<"$repositories"); do
    if download "$repository" >>"$log" 2>&1; then
        fetched=yes
        break
    fi
done
[[ $fetched == yes ]] || give_up "apt could not download it ($(grep -E '^(E|Err)' "$log" | tail -n 1 | sed -E 's#[a-z]+://[^ ]*#the repository#g'))"

for package in "$work"/cache/archives/*.deb; do
    dpkg -x "$package" "$root" >>"$log" 2>&1 || give_up "dpkg could not unpack ${package##*/}"
done

# Keep the programs and their libraries only.
find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' -exec rm -rf {} +
find "$root/usr" -mindepth 1 -maxdepth 1 ! -name bin ! -name 'lib*' -exec rm -rf {} +
find "$root/usr/bin" -type f ! -name 'redis-*' -delete
find "$root" \( -name gconv -o -name systemd -o -name security \) -prune -exec rm -rf {} +

loader=$(cd "$root" && find . -name 'ld-linux*.so.*' -type f | head -n 1)
[[ -n $loader ]] || give_up "the downloaded libc has no loader"
for program in redis-server redis-cli; do
    cat >"$work/bin/$program" <<EOF
#!/bin/sh
# Run $program by the loader and the libraries it came with.
root=\$(dirname "\$(readlink -f "\$0")")/../root
exec "\$root/$loader" --argv0 $program --library-path "\$root/$(dirname "$loader")" "\$root/usr/bin/$program" "\$@"
EOF
    chmod +x "$work/bin/$program"
done

version=$("$work/bin/redis-server" --version 2>>"$log") || give_up "the downloaded program does not run here"
rm -rf "$work"/{state,cache,log,fetch.log,status,sources.list,apt.conf,lock,lock-frontend}
rm -rf "$target"
chmod 755 "$work"
mv -T "$work" "$target" 2>/dev/null || [[ -x $target/bin/redis-server ]] || give_up "could not move it to $target"
echo "$version" | awk '{ print "got Redis", substr($3, 3) }'
