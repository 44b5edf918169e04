# What the fetch_*.sh share: packages of Debian, unpacked into a folder of our own. To be sourced.
#
# Needs no root and touches nothing outside the folder. Where it cannot work it says so in one
# line; that is an error only with CI=true, where the program is required.
#
#   what    the program's name            hint    what follows if it is not there
#   target  the folder that it gets       work    ... while it is made; `root` is below it

give_up() {
    if [[ ${CI:-} == true ]]; then
        echo "no private $what: $1; with CI=true it must be there" >&2
        exit 1
    fi
    echo "no private $what: $1; $hint" >&2
    exit 0
}

# A folder with an apt configuration, lists and an archive of its own.
prepare() {
    local tool
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
    cat >"$work/apt.conf" <<EOF
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
}

not_downloaded() {
    give_up "apt could not download it ($(grep -E '^(E|Err)' "$log" | tail -n 1 | sed -E 's#[a-z]+://[^ ]*#the repository#g'))"
}

unpack() {
    dpkg -x "$1" "$root" >>"$log" 2>&1 || give_up "dpkg could not unpack ${1##*/}"
}

# What apt needed goes; the rest is put into its place at once.
into_place() {
    rm -rf "$work"/{state,cache,log,fetch.log,status,sources.list,apt.conf,lock,lock-frontend}
    rm -rf "$target"
    chmod 755 "$work"
    mv -T "$work" "$target" 2>/dev/null || [[ -x $target/bin/$1 ]] || give_up "could not move it to $target"
}
