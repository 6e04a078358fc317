package sql

import _ "embed"

// Statements of package ownership.
var (
	//go:embed ownership_session_setup.sql
	OwnershipSessionSetup string
	//go:embed ownership_session_lock.sql
	OwnershipSessionLock string
	//go:embed ownership_session_name.sql
	OwnershipSessionName string
	//go:embed ownership_session_unlock.sql
	OwnershipSessionUnlock string
	//go:embed ownership_session_look.sql
	OwnershipSessionLook string
	//go:embed ownership_session_backend.sql
	OwnershipSessionBackend string
	//go:embed ownership_session_insert.sql
	OwnershipSessionInsert string
	//go:embed ownership_session_listen.sql
	OwnershipSessionListen string
	//go:embed ownership_heartbeat.sql
	OwnershipHeartbeat string
	//go:embed ownership_claim_look.sql
	OwnershipClaimLook string
	//go:embed ownership_claim.sql
	OwnershipClaim string
	//go:embed ownership_claim_reread.sql
	OwnershipClaimReread string
	//go:embed ownership_release.sql
	OwnershipRelease string
	//go:embed ownership_owned.sql
	OwnershipOwned string
	//go:embed ownership_finder_look.sql
	OwnershipFinderLook string
	//go:embed ownership_finder_relist.sql
	OwnershipFinderRelist string
	//go:embed ownership_finder_terminate.sql
	OwnershipFinderTerminate string
	//go:embed ownership_outlived.sql
	OwnershipOutlived string
	//go:embed ownership_bury_lock.sql
	OwnershipBuryLock string
	//go:embed ownership_bury.sql
	OwnershipBury string
)
