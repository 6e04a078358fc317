#!/bin/sh
# As root on Debian: installs PostgreSQL's server programs if there are none.
# Anywhere else it does nothing: whoever needs them says what to install.
set -eu

[ -z "${PGEXEC_TEST_DATABASE_URL:-}" ] || exit 0
[ -z "${PGEXEC_DATABASE_URL:-}" ] || exit 0
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
! go run -buildvcs=false ./internal/pgserver/bindir >/dev/null 2>&1 || exit 0

echo 'no PostgreSQL server programs found: installing postgresql with apt-get' >&2
. "$(dirname "$0")/quietly.sh"
quietly apt-get update
quietly apt-get install -y --no-install-recommends postgresql-common
# The programs are wanted, not the server that the package would start.
quietly sed -i 's/^#\{0,1\}create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
quietly apt-get install -y --no-install-recommends postgresql
