#!/bin/sh
# As root on Debian: installs psycopg 3, which the example worker in Python needs, if
# no python3 has it. Anywhere else it does nothing: the example's test says what it lacks.
set -eu

for python in python3 /usr/bin/python3; do
	! "$python" -c 'import psycopg' >/dev/null 2>&1 || exit 0
done
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0

echo 'no psycopg found: installing python3-psycopg with apt-get' >&2
. "$(dirname "$0")/quietly.sh"
quietly apt-get update
quietly apt-get install -y --no-install-recommends python3-psycopg
