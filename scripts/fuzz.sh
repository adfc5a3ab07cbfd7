#!/usr/bin/env bash
# Runs every fuzz target of the module for a while:
#
#     scripts/fuzz.sh 10s
set -euo pipefail

fuzztime=$1

# go test lists the targets of a package before the line "ok package time".
targets=$(go test -list '^Fuzz' ./... | awk '
  /^Fuzz/ { names[n++] = $1 }
  /^ok/   { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }')

while read -r package name; do
  [ -n "$name" ] || continue
  echo "# $package $name"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$package" </dev/null
done <<<"$targets"
