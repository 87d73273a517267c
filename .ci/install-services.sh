#!/bin/sh
# Installs what the tests of real services need on Debian or Ubuntu: Prometheus (with promtool), Alertmanager,
# Redis, PostgreSQL, Java, Maven, Chromium, docker-compose (2 MB; no engine is needed to check a file).
# Idempotent and quiet; run as root, or where sudo needs no password.
set -eu

missing=""
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing="$missing prometheus"
command -v prometheus-alertmanager >/dev/null || command -v alertmanager >/dev/null ||
    missing="$missing prometheus-alertmanager"
command -v redis-server >/dev/null || missing="$missing redis-server"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v java >/dev/null || missing="$missing default-jre-headless"
command -v mvn >/dev/null || missing="$missing maven"
command -v chromium >/dev/null || missing="$missing chromium"
command -v docker-compose >/dev/null || missing="$missing docker-compose"
[ -z "$missing" ] && exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # the packages are separate words
if ! { $as_root apt-get update -q && $as_root apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "install-services.sh: could not install:$missing" >&2
    exit 1
fi
