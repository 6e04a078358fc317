#!/bin/sh
# Runs `go test` with the given arguments, for ./... in integration/ as well, on a
# PostgreSQL server of this run alone, which ends with it. After a failure
# the server stays for ten minutes with the databases of the failed tests,
# unless CI=true. A signal ends all of it and leaves nothing behind; without bash
# it first waits for the tests.
[ -n "${BASH_VERSION:-}" ] || ! command -v bash >/dev/null || exec bash "$0" "$@"
set -u
cd "$(dirname "$0")/.."

tools/install-postgres.sh || exit 1
case " $* " in
*" ./... "*) tools/install-extras.sh ;;
esac
if [ -z "${PGEXEC_TEST_DATABASE_URL:-}" ]; then
	go run -buildvcs=false ./internal/pgserver/bindir >/dev/null || exit 1
fi
case " $* " in
*" -race "*)
	cc=$(go env CC)
	if ! command -v "${cc%% *}" >/dev/null; then
		echo "the race detector needs a C compiler, and $cc is not found: install gcc, or run: make test RACE=" >&2
		exit 1
	fi
	export CGO_ENABLED=1
	;;
esac

PGEXEC_TEST_STATE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/pgexec-make.XXXXXX") || exit 1
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/pgexec-tmp.XXXXXX") && chmod 1777 "$TMPDIR" || exit 1 # servers of root run as another user
export PGEXEC_TEST_STATE_DIR TMPDIR

# In bash each command is a process group, which a signal to this script ends.
group=
if [ -n "${BASH_VERSION:-}" ]; then
	set -m
	run() { "$@" & group=$!; wait "$group"; }
else
	run() { "$@"; }
fi

# Asks the server's keeper to end it as soon as no test uses it, and waits; servers
# that tests had for themselves end with these.
stop_servers() {
	for file in "$PGEXEC_TEST_STATE_DIR"/*/server.json; do
		pid=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$file" 2>/dev/null)
		[ -n "$pid" ] && kill -TERM "$pid" 2>/dev/null
	done
	tries=0
	while ls -d "$TMPDIR"/pgexec-pg-* "$TMPDIR"/*/pgexec-pg-* >/dev/null 2>&1 && [ "$tries" -lt 200 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	rm -rf "$PGEXEC_TEST_STATE_DIR" "$TMPDIR"
}
stop() {
	trap '' INT TERM HUP
	[ -z "$group" ] || { kill -INT -- "-$group"; wait "$group"; } 2>/dev/null
	stop_servers
}
trap 'stop; trap - INT; kill -INT $$' INT
trap 'stop; exit 143' TERM HUP

status=0
run go test -timeout=20m "$@" || status=1
case " $* " in
*" ./... "*) run go -C integration test -timeout=20m -parallel=4 "$@" || status=1 ;; # most of them wait
esac

if [ "$status" -ne 0 ] && [ "${CI:-}" != true ] && ls "$PGEXEC_TEST_STATE_DIR"/*/kept >/dev/null 2>&1; then
	echo "The server of this run stays for ten minutes, for a look at the databases of the failed tests." >&2
else
	stop_servers
fi
exit "$status"
