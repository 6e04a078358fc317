// Package doctest reads the examples of a document, so that tests can run what
// a reader would type first.
//
// The package is for tests; nothing else imports it.
package doctest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Blocks returns what the document's fenced code blocks of one language hold, in
// their order. A document without any fails the test.
func Blocks(t testing.TB, path, language string) []string {
	t.Helper()
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+regexp.QuoteMeta(language)+"\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block of %s", path, language)
	}
	return blocks
}

// Statement is an SQL statement of a document.
type Statement struct {
	Text string
	// Want are the rows it gives, each as its values joined with " | "; an
	// ellipsis stands for any text. Nil if the document does not say.
	Want []string
}

// Statements splits a block of SQL. A statement ends with a semicolon at the end
// of a line; the comments after it, up to the next line that is none, are what it gives:
//
//	SELECT status FROM pgexec.runs;  -- parked
func Statements(block string) []Statement {
	var out []Statement
	var text strings.Builder
	rows := false // the last line ended a statement, or told a row of it
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n")
		if row, ok := strings.CutPrefix(line, "-- "); ok && rows {
			last := &out[len(out)-1]
			last.Want = append(last.Want, row)
			continue
		}
		m := end.FindStringSubmatch(line)
		if rows = m != nil; !rows {
			text.WriteString(line + "\n")
			continue
		}
		text.WriteString(m[1])
		s := Statement{Text: strings.TrimSpace(text.String())}
		text.Reset()
		if m[2] != "" {
			s.Want = []string{m[2]}
		}
		out = append(out, s)
	}
	if rest := strings.TrimSpace(text.String()); rest != "" {
		out = append(out, Statement{Text: rest})
	}
	return out
}

var end = regexp.MustCompile(`^(.*);(?:\s+-- (.*))?$`)

// Gives reports whether rows are those that the document promises.
func (s Statement) Gives(rows []string) bool {
	if len(rows) != len(s.Want) {
		return false
	}
	for i, want := range s.Want {
		parts := strings.Split(want, "…")
		for j, part := range parts {
			parts[j] = regexp.QuoteMeta(part)
		}
		if !regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(rows[i]) {
			return false
		}
	}
	return true
}
