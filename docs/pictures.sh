#!/bin/sh
# Makes the README's pictures anew: docs/pictures.sh [ALTQ]. demo.svg is what `altq demo` prints of
# the simulator, which is the same on every run; report.png is the top of a page of `altq report`,
# photographed by chromium (Debian: apt-get install chromium fonts-dejavu-core).
set -eu
cd "$(dirname "$0")/.."
altq=${1:-target/release/altq}
mkdir -p docs/pictures

# The table and the bars of the demo. Its left half, a FIFO, is red; its right half, altq, is green;
# in the bars what a class has of its own is green and what it borrowed is blue.
"$altq" demo | awk '
    /^A cbq.conf/ { exit }
    { lines[++count] = $0 }
    function escape(text) {
        gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
        return text
    }
    function part(class, text) { return text == "" ? "" : "<tspan class=\"" class "\">" escape(text) "</tspan>" }
    function bars(text,   out) {
        while (match(text, /#+|\++/)) {
            out = out escape(substr(text, 1, RSTART - 1))
            out = out part(substr(text, RSTART, 1) == "#" ? "own" : "more", substr(text, RSTART, RLENGTH))
            text = substr(text, RSTART + RLENGTH)
        }
        return out escape(text)
    }
    END {
        while (count > 0 && lines[count] == "") count--
        width = 80 * 8.43 + 40; height = count * 19 + 54
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" ", width, height, width, height
        print "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">"
        print "<style>text{fill:#d8dee9;white-space:pre}.dim{fill:#8a93a5}.say{fill:#aab4c5}.fifo{fill:#f08d7b}.altq,.own{fill:#8fd694}.more{fill:#7fb8f0}</style>"
        printf "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1b2130\"/>\n", width, height
        printf "<text x=\"20\" y=\"30\"><tspan class=\"dim\">$</tspan> altq demo</text>\n"
        for (n = 1; n <= count; n++) {
            line = lines[n]
            if (line ~ /through a FIFO +through altq/) table = 1
            if (line == "") table = 0
            if (line ~ /everybody sends  /) chart = 1
            if (line == "") text = ""
            else if (table) text = escape(substr(line, 1, 16)) part("fifo", substr(line, 17, 24)) part("altq", substr(line, 41))
            else if (chart) text = bars(line)
            else text = part("say", line)
            if (text != "") printf "<text x=\"20\" y=\"%d\">%s</text>\n", n * 19 + 38, text
        }
        print "</svg>"
    }' > docs/pictures/demo.svg

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$altq" sim cases/borrow.toml --json > "$work/borrow.json"
"$altq" report "$work/borrow.json" -o "$work/borrow.html" 2> /dev/null
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=960,994 \
    --screenshot=docs/pictures/report.png "file://$work/borrow.html" > /dev/null 2>&1
