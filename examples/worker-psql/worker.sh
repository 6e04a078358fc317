#!/bin/sh
# A worker in plain psql: does the nodes of kind "shout" of all runs. Any number may run:
#
#     psql "$DATABASE_URL" -c "select pgexec.declare_kind('shout')"
#     DATABASE_URL=postgres://… ./worker.sh
#
# SIGTERM ends it when the task in hand is done.
set -u
cd "$(dirname "$0")" || exit 1
stop=
trap 'stop=1' TERM INT
echo "serves shout"
while [ -z "$stop" ]; do
	psql --no-psqlrc --quiet --tuples-only --set worker="$(hostname)-$$" --file worker.sql "$DATABASE_URL" >/dev/null || sleep 5
done
