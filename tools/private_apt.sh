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

# Packages, and all they need, from suites that the machine itself may not use. The repository is
# that of the machine's apt: no address is written here.
#   download_from "experimental sid" redis-server/experimental redis-tools/experimental
download_from() {
    local suites=$1 options="" keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    local repositories repository suite
    shift
    repositories=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | awk '!seen[$0]++' || true)
    [[ -n $repositories ]] || give_up "apt knows no repository"
    [[ -r $keyring ]] && options="[signed-by=$keyring] "
    # Only what we name, whatever the machine itself uses or prefers.
    cat >>"$work/apt.conf" <<EOF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
EOF
    export APT_CONFIG=$work/apt.conf
    for repository in $(head -n 4 <<<"$repositories"); do
        for suite in $suites; do
            printf 'deb %s%s %s main\n' "$options" "$repository" "$suite"
        done >"$work/sources.list"
        if { apt-get -q update && apt-get -q install -y --download-only "$@"; } >>"$log" 2>&1; then
            return
        fi
    done
    not_downloaded
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
