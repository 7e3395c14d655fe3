#!/usr/bin/env bash
# Has a browser without a window open the page of a timeline, and looks at what the page has drawn: marks, a search, the text of a match with
# its rule, the text of what the pointer stands over. Installs chromium from Debian if it is missing. Nothing is loaded from a network.
#
#   tools/timeline.sh
#
# NDKCTL names a build of ndkctl; without it one is made.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/debian.sh
source tools/ndkctl.sh

browser=$(command -v chromium || command -v chromium-browser || true)
if [[ -z $browser ]]; then
    install_packages chromium
    browser=$(command -v chromium)
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
have_ndkctl dev
"$NDKCTL" timeline --example merge --html "$scratch/page.html"

# The elements of the page after its program has run.
dump() {
    "$browser" --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update \
        --user-data-dir="$scratch/profile" --host-resolver-rules='MAP * ~NOTFOUND' --dump-dom "file://$scratch/page.html#$1" 2>/dev/null
}
expect() { grep -q "$2" <<<"$1" || { echo "the page does not show: $2"; exit 1; }; }

plain=$(dump all)
expect "$plain" 'data-shown="[1-9]'
for kind in armed merge decision callback poll request; do expect "$plain" "class=\"shape $kind\""; done
expect "$plain" 'class="arrow"'
found=$(dump 'all&search=both are one arm&next')
expect "$found" '>1 match<'
expect "$found" 'mark chosen'
expect "$found" 'class="mark dim"'
expect "$found" 'NDKPI 7.1.4</a>'
grep -q 'id="foot">Point at a mark' <<<"$plain" || { echo "something is told before anybody has pointed at it"; exit 1; }
pointed=$(dump 'all&point')
expect "$pointed" 'id="foot"><b>.*Armed for .*NDKPI 7.1.5</a>'
near=$(dump 'all&zoom=0.2')
shown() { sed -n 's/.*data-shown="\([0-9]*\)".*/\1/p' <<<"$1" | head -1; }
[[ $(shown "$near") -lt $(shown "$plain") ]] || { echo "a closer look shows no fewer marks"; exit 1; }
echo "the page draws $(shown "$plain") marks, finds, tells, answers a pointer and zooms"
