#!/usr/bin/env bash
# Builds every program under examples/ and runs it. Each must end well within a
# minute, with the arguments below or, if it is not listed there, with none.
set -euo pipefail

arguments() {
  case $1 in
    quickstart) echo "-seconds 2" ;;
    replay) echo "-limit 20 examples/replay/sample.log" ;;
  esac
}

bin=$(mktemp -d)
trap 'rm -rf -- "$bin"' EXIT

packages=$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./examples/...)
for package in $packages; do
  name=${package##*/examples/}
  read -ra args <<<"$(arguments "$name")"
  printf '\n# examples/%s %s\n' "$name" "${args[*]}"
  go build -o "$bin/program" "$package"
  timeout 60 "$bin/program" "${args[@]}" </dev/null || {
    echo "examples/$name: exit status $?" >&2
    exit 1
  }
done
