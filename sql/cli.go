package sql

import _ "embed"

// The statements of the command line.
var (
	//go:embed cli_count.sql
	CliCount string
	//go:embed cli_node_lines.sql
	CliNodeLines string
	//go:embed cli_nodes.sql
	CliNodes string
	//go:embed cli_now.sql
	CliNow string
	//go:embed cli_tasks.sql
	CliTasks string
	//go:embed cli_waits.sql
	CliWaits string
)
