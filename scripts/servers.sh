#!/usr/bin/env bash
# Runs a command with a Redis and a Valkey server of its own:
#
#     scripts/servers.sh go test ./...
#
# The command finds the servers in REDIS_ADDR and VALKEY_ADDR. They listen on
# free loopback ports, keep nothing on disk, and end with the command, whose
# exit code is passed on. An address that is already set is used as it is and
# nothing is started for it. Without a command, the addresses are printed and
# the servers run until they are interrupted.
#
# A server that is missing is installed with apt-get, by root or sudo.
set -euo pipefail

note() { printf 'servers.sh: %s\n' "$*" >&2; }
die() { note "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# has_candidate PACKAGE: can a configured source provide it?
has_candidate() {
  LC_ALL=C apt-cache policy "$1" | grep 'Candidate: [^(]' >/dev/null
}

# add_backports adds this Debian release's backports, from the mirror that the
# machine already uses.
add_backports() {
  local codename mirror
  # shellcheck source=/dev/null
  codename=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME") ||
    die "no package source has $1: install it, or set its address"
  # shellcheck disable=SC2016 # apt expands $(REPO_URI)
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
    'Origin: Debian' "Codename: $codename" 'Component: main' | sed -n 1p)
  note "adding $codename-backports for $1"
  as_root tee /etc/apt/sources.list.d/fleetlimit-backports.sources >/dev/null <<SOURCE
Types: deb
URIs: ${mirror:-http://deb.debian.org/debian}
Suites: $codename-backports
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCE
  as_root apt-get update -q
}

# apt_install PACKAGE... installs without starting services: Debian starts a
# server when it is installed, unless policy-rc.d says no. It runs in a subshell,
# whose trap removes the file again.
apt_install() (
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'as_root rm -f "$policy"' EXIT
    trap 'exit 130' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod +x "$policy"
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"
)

# require PROGRAM... installs those that are missing. A program is named like
# its package.
require() {
  local program missing=()
  for program; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    die "install ${missing[*]}, or set REDIS_ADDR and VALKEY_ADDR"
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
    die "installing ${missing[*]} needs root or sudo"
  note "installing ${missing[*]}"
  as_root apt-get update -q || note "apt-get update had errors; going on"
  for program in "${missing[@]}"; do
    has_candidate "$program" || add_backports "$program"
  done
  apt_install "${missing[@]}"
}

# answers PID LOG CLI PORT waits until the server answers. It fails when the
# process has ended, as it does when another one has the port; nothing is sent
# there before the log says that the port is ours.
answers() {
  local deadline=$((SECONDS + 20))
  while kill -0 "$1" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do
    if grep 'Ready to accept connections' "$2" >/dev/null 2>&1 &&
      [ "$("$3" -p "$4" ping 2>/dev/null)" = PONG ]; then
      return 0
    fi
    sleep 0.05
  done
  return 1
}

# start PROGRAM starts a server on a free port and puts its address in $addr.
# Ports are below those that the kernel gives to outgoing connections.
start() {
  local program=$1 log=$dir/$1.log port
  for _ in {1..10}; do
    port=$((20000 + RANDOM % 12000))
    "$program" --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" \
      >"$log" 2>&1 </dev/null &
    if answers $! "$log" "${program%-server}-cli" "$port"; then
      addr=127.0.0.1:$port
      return
    fi
  done
  cat "$log" >&2
  die "$program does not start"
}

# shellcheck disable=SC2317 # called by the trap
# end_jobs SIGNAL signals what this shell started and still runs, each with its
# process group.
end_jobs() {
  local pid
  for pid in $(jobs -pr); do
    kill -s "$1" -- "-$pid" 2>/dev/null || true
  done
}

# shellcheck disable=SC2317 # called by the trap
cleanup() {
  trap '' INT TERM HUP
  end_jobs TERM
  for _ in {1..100}; do
    [ -n "$(jobs -pr)" ] || break
    sleep 0.1
  done
  end_jobs KILL
  rm -rf -- "$dir"
}

wanted=()
[ -n "${REDIS_ADDR:-}" ] || wanted+=(redis-server)
[ -n "${VALKEY_ADDR:-}" ] || wanted+=(valkey-server)

if [ "${#wanted[@]}" -gt 0 ]; then
  # Of several runs at once, one installs and the others find it done.
  if [ -d /etc/apt ]; then
    exec 9</etc/apt
    flock 9
  fi
  require "${wanted[@]}" >&2
  exec 9<&-

  dir=$(mktemp -d)
  trap cleanup EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # Each background job is a process group of its own, so that the command can
  # be ended with all its children, and an interrupt from the terminal does not
  # reach the servers before the command.
  set -m

  if [ -z "${REDIS_ADDR:-}" ]; then
    start redis-server
    REDIS_ADDR=$addr
  fi
  if [ -z "${VALKEY_ADDR:-}" ]; then
    start valkey-server
    VALKEY_ADDR=$addr
  fi
fi
export REDIS_ADDR VALKEY_ADDR

if [ $# -eq 0 ]; then
  printf 'export REDIS_ADDR=%s VALKEY_ADDR=%s\n' "$REDIS_ADDR" "$VALKEY_ADDR"
  [ "${#wanted[@]}" -gt 0 ] || exit 0
  note "running; interrupt to end them"
  set -- tail -f /dev/null
fi
[ "${#wanted[@]}" -gt 0 ] || exec "$@"

"$@" </dev/null &
status=0
wait $! || status=$?
exit "$status"
