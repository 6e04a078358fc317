package sql

import _ "embed"

// PgexectestNodes is what tests read of a run.
//
//go:embed pgexectest_nodes.sql
var PgexectestNodes string
