#!/bin/sh
# Checks that what is generated is current and that nothing released is broken.
# Changes nothing. $BUF is the buf to use; protoc-gen-go lies beside it.
set -eu
cd "$(dirname "$0")/.."

PATH="$(dirname "$BUF"):$PATH"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

echo 'verify: generated code is current'
(cd proto && "$BUF" generate -o "$out")
(cd "$out" && find . -name '*.go') | while read -r file; do
	diff -u "proto/$file" "$out/$file" || { echo "proto/$file is not current: run make generate" >&2; exit 1; }
done

echo 'verify: proto style'
(cd proto && "$BUF" lint)

for kept in proto/descriptors/*.binpb; do
	echo "verify: logs of $(basename "$kept" .binpb) stay readable"
	(cd proto && "$BUF" breaking --against "descriptors/$(basename "$kept")")
done

echo 'verify: go.mod is tidy'
go mod tidy -diff
(cd integration && go mod tidy -diff)
