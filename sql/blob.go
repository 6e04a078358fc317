package sql

import _ "embed"

// Statements of package blob.
var (
	//go:embed blob_begin.sql
	BlobBegin string
	//go:embed blob_stored.sql
	BlobStored string
	//go:embed blob_hold.sql
	BlobHold string
	//go:embed blob_find.sql
	BlobFind string
	//go:embed blob_stores.sql
	BlobStores string
	//go:embed blob_list.sql
	BlobList string
	//go:embed blob_chunk_write.sql
	BlobChunkWrite string
	//go:embed blob_chunk_read.sql
	BlobChunkRead string
	//go:embed blob_chunk_size.sql
	BlobChunkSize string
	//go:embed blob_chunk_remove.sql
	BlobChunkRemove string
	//go:embed blob_collect_refs.sql
	BlobCollectRefs string
	//go:embed blob_collect_doom.sql
	BlobCollectDoom string
	//go:embed blob_doomed.sql
	BlobDoomed string
	//go:embed blob_forget.sql
	BlobForget string
)
