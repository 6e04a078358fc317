package sql

import _ "embed"

// Statements of package feed.
var (
	//go:embed feed_listen_log.sql
	FeedListenLog string
	//go:embed feed_listen_ping.sql
	FeedListenPing string
	//go:embed feed_notify.sql
	FeedNotify string
	//go:embed feed_ping.sql
	FeedPing string
	//go:embed feed_read.sql
	FeedRead string
)
