#!/usr/bin/env bash
# Builds every program under examples/ and runs it, which must end well within a
# minute; quickstart also on the servers in REDIS_ADDR and VALKEY_ADDR, if set.
set -euo pipefail

# runs NAME prints the arguments for each run of an example, a line for each. An
# example that needs none has one run without.
runs() {
  case $1 in
    quickstart)
      echo "-seconds 2"
      [ -z "${REDIS_ADDR:-}" ] || echo "-seconds 2 -store redis://$REDIS_ADDR"
      [ -z "${VALKEY_ADDR:-}" ] || echo "-seconds 2 -store valkey://$VALKEY_ADDR"
      ;;
    replay) echo "-limit 20 examples/replay/sample.log" ;;
    *) echo ;;
  esac
}

bin=$(mktemp -d)
trap 'rm -rf -- "$bin"' EXIT

packages=$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./examples/...)
for package in $packages; do
  name=${package##*/examples/}
  go build -o "$bin/program" "$package"
  while read -ra args; do
    printf '\n# examples/%s %s\n' "$name" "${args[*]}"
    timeout 60 "$bin/program" "${args[@]}" </dev/null || {
      echo "examples/$name: exit status $?" >&2
      exit 1
    }
  done < <(runs "$name")
done
