#!/bin/sh
# As root on Debian: installs what some tests need beside PostgreSQL, where it is
# missing: psycopg 3 for the example worker in Python, pgbouncer for the tests behind a
# pooler. Anywhere else, and where it cannot, it does nothing: these tests say what they lack.
set -u

missing=
python3 -c 'import psycopg' >/dev/null 2>&1 || /usr/bin/python3 -c 'import psycopg' >/dev/null 2>&1 || missing=python3-psycopg
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
[ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0

echo installing $missing 'with apt-get, which some tests need' >&2
. "$(dirname "$0")/quietly.sh"
(quietly apt-get -o Acquire::Retries=3 update) || exit 0

# The program is wanted, not the service that its package would start.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$log" "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
fi
for package in $missing; do
	(quietly apt-get -o Acquire::Retries=3 install -y --no-install-recommends "$package") || continue
	[ "$package" != pgbouncer ] || update-rc.d pgbouncer disable >/dev/null 2>&1
done
exit 0
