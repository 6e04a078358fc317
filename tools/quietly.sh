# For `.`: quietly COMMAND … shows what the command printed only if it failed, and ends the script then.
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
quietly() {
	"$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}
