package runlog

import (
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
)

// RunID is the id of a run: a UUID, of version 7 unless whoever started the run chose another.
// It is a parameter and a scan target of pgx for uuid and, in a slice, for uuid[], in the binary and the text format.
// (As with any slice of a type that pgx does not have itself, not in its exec and simple protocol modes: [Texts] is.)
type RunID [16]byte

// Texts returns ids as any connection can send them, whatever mode it is in.
func Texts(ids []RunID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// Seq is the position of a record in its run's log: 1, 2, 3 … without gaps.
type Seq int64

// Epoch is the number of claims a run has had.
type Epoch int64

// ReplicaID is the id of a replica, always positive.
type ReplicaID int32

// ParseRunID reads the 36-character form of a UUID, in either case.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// String returns the 36-character form in lower case.
func (id RunID) String() string { return string(id.appendText(nil)) }

// MarshalText returns the 36-character form in lower case.
func (id RunID) MarshalText() ([]byte, error) { return id.appendText(nil), nil }

// UnmarshalText reads the 36-character form of a UUID, in either case.
func (id *RunID) UnmarshalText(text []byte) error {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return fmt.Errorf("parse run id: %q is not a UUID", text)
	}
	var digits [32]byte
	n := copy(digits[:], text[:8])
	n += copy(digits[n:], text[9:13])
	n += copy(digits[n:], text[14:18])
	n += copy(digits[n:], text[19:23])
	copy(digits[n:], text[24:])
	var parsed RunID
	if _, err := hex.Decode(parsed[:], digits[:]); err != nil {
		return fmt.Errorf("parse run id: %q is not a UUID", text)
	}
	*id = parsed
	return nil
}

// ScanUUID implements [pgtype.UUIDScanner]. A null is an error: no run has a null id.
func (id *RunID) ScanUUID(v pgtype.UUID) error {
	if !v.Valid {
		return fmt.Errorf("scan run id: null")
	}
	*id = v.Bytes
	return nil
}

// UUIDValue implements [pgtype.UUIDValuer].
func (id RunID) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: id, Valid: true}, nil
}

func (id RunID) appendText(dst []byte) []byte {
	dst = hex.AppendEncode(dst, id[:4])
	for _, part := range [][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		dst = append(dst, '-')
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}
