package sql

import _ "embed"

// Statements of the client.
var (
	//go:embed client_start.sql
	ClientStart string
	//go:embed client_start_existing.sql
	ClientStartExisting string
	//go:embed client_get.sql
	ClientGet string
	//go:embed client_exists.sql
	ClientExists string
	//go:embed client_status.sql
	ClientStatus string
	//go:embed client_list.sql
	ClientList string
	//go:embed client_descendants.sql
	ClientDescendants string
	//go:embed client_record.sql
	ClientRecord string
	//go:embed client_signal.sql
	ClientSignal string
	//go:embed client_cancel.sql
	ClientCancel string
	//go:embed client_pause.sql
	ClientPause string
	//go:embed client_resume.sql
	ClientResume string
	//go:embed client_retry.sql
	ClientRetry string
	//go:embed client_fork.sql
	ClientFork string
)
