package blob

import "fmt"

// Codes of faults.
const (
	CodeMissing  = "blob_missing"
	CodeAltered  = "blob_altered"
	CodeTooLarge = "blob_too_large"
)

// Fault says that a blob will never be what it should be: to try again does not help. A store that cannot be
// reached is no fault.
type Fault struct {
	// URL names the blob; empty for one that was not stored.
	URL string
	// Code is a short stable word for programs.
	Code string
	text string
}

func (f *Fault) Error() string { return f.text }

func missing(url string) error {
	return &Fault{URL: url, Code: CodeMissing, text: fmt.Sprintf("blob %s is missing from its store", url)}
}

func altered(url, how string) error {
	return &Fault{URL: url, Code: CodeAltered, text: fmt.Sprintf("blob %s is altered: %s", url, how)}
}

func tooLarge() error {
	return &Fault{Code: CodeTooLarge, text: fmt.Sprintf("more than %d bytes, which is the most that a blob has", MaxBytes)}
}
