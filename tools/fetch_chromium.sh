#!/usr/bin/env bash
# Fetch a private headless Chromium on a Debian machine: fetch_chromium.sh <folder>
#
# 1. where a Chromium is on PATH, leave it at that;
# 2. with the repositories of the machine's apt (no address is written here), and lists and an
#    archive of our own, download the browser, all it needs, and a font;
# 3. unpack that into a root of its own, without libc: the browser starts itself anew by its own
#    path, so it must run by the machine's loader, and comes from the machine's own release;
# 4. let it print a page, then rename it into place.
set -euo pipefail

target=$1
[[ $target == /* ]] || target=$PWD/$target
what=Chromium
hint="its tests will be skipped, see docs/decisions/0047-the-report.md"
. "${BASH_SOURCE[0]%/*}/private_apt.sh"

opens_a_page() {
    [[ $(timeout 60 "$1" --headless --no-sandbox --disable-gpu --dump-dom "data:text/html,<p>here</p>" 2>/dev/null) == *here* ]]
}

if [[ -x $target/bin/chromium ]] && opens_a_page "$target/bin/chromium"; then
    exit 0
fi
for program in chromium chromium-browser chromium-headless-shell google-chrome; do
    if found=$(command -v "$program") && opens_a_page "$found"; then
        exit 0
    fi
done

prepare
export APT_CONFIG=$work/apt.conf

download() {
    apt-get -q update && apt-get -q install -y --download-only "$1" fonts-dejavu-core
}

echo "fetching Chromium into ${target#"$PWD"/} ..."
fetched=no
for package in chromium-headless-shell chromium; do # the second where the first is not made
    if download "$package" >>"$log" 2>&1; then
        fetched=yes
        break
    fi
done
[[ $fetched == yes ]] || not_downloaded

for archive in "$work"/cache/archives/*.deb; do
    case ${archive##*/} in
    libc6_* | libc-bin_* | perl* | libperl* | systemd* | adwaita* | hicolor*) continue ;;
    esac
    unpack "$archive"
done

browser=$(cd "$root" && find usr/lib/chromium* -type f -perm -u+x \( -name chromium-headless-shell -o -name headless_shell -o -name chromium \) 2>/dev/null | head -n 1)
[[ -n $browser ]] || give_up "the package $package holds no browser (a stub for another packager?)"

# Keep the browser, its libraries and the font only; no drivers of graphics cards.
find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' -exec rm -rf {} +
find "$root/usr" -mindepth 1 -maxdepth 1 ! -name share ! -name 'lib*' -exec rm -rf {} +
find "$root/usr/share" -mindepth 1 -maxdepth 1 ! -name fonts ! -name X11 -exec rm -rf {} +
find "$root/usr/lib" \( -name dri -o -name gconv -o -name systemd -o -name 'libLLVM*' -o -name 'libz3.*' -o -name 'libVkLayer*' \) -prune -exec rm -rf {} +

cat >"$work/fonts.conf" <<EOF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">root/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
EOF
libraries=$(cd "$root" && find . -name '*.so*' ! -path "./${browser%/*}/*" -printf '%h\n' | sort -u | grep -E '/lib(/[^/]*-linux-gnu[^/]*(/pulseaudio)?)?$' | sed 's#^\.#$root#' | paste -sd:)
cat >"$work/bin/chromium" <<EOF
#!/bin/sh
# Run the browser with the libraries and the font it came with.
here=\$(dirname "\$(readlink -f "\$0")")/..
root=\$here/root
export LD_LIBRARY_PATH="$libraries" FONTCONFIG_FILE="\$here/fonts.conf" XDG_CACHE_HOME="\$here/cache"
exec "\$root/$browser" "\$@"
EOF
chmod +x "$work/bin/chromium"

opens_a_page "$work/bin/chromium" || give_up "the downloaded program does not run here"
version=$("$work/bin/chromium" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)
into_place chromium
echo "got Chromium $version"
