package sql

import _ "embed"

// Statements of package runlog.
var (
	//go:embed runlog_setup.sql
	RunlogSetup string
	//go:embed runlog_append_one.sql
	RunlogAppendOne string
	//go:embed runlog_append_many.sql
	RunlogAppendMany string
	//go:embed runlog_append_tx.sql
	RunlogAppendTx string
	//go:embed runlog_append_tx_ahead.sql
	RunlogAppendTxAhead string
	//go:embed runlog_is_next.sql
	RunlogIsNext string
	//go:embed runlog_may_append.sql
	RunlogMayAppend string
	//go:embed runlog_begin_tx.sql
	RunlogBeginTx string
	//go:embed runlog_begin_brief.sql
	RunlogBeginBrief string
	//go:embed runlog_tx_is_open.sql
	RunlogTxIsOpen string
	//go:embed runlog_look.sql
	RunlogLook string
	//go:embed runlog_finish.sql
	RunlogFinish string
	//go:embed runlog_tell.sql
	RunlogTell string
	//go:embed runlog_read.sql
	RunlogRead string
)
