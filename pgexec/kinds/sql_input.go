package kinds

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	maxStatement      = 1 << 20
	defaultSQLTimeout = 30 * time.Second
	maxSQLTimeout     = 10 * time.Minute
	defaultMaxRows    = 1_000
	maxMaxRows        = 100_000
)

// sqlInput is the checked input of a sql node.
type sqlInput struct {
	statement string
	// word is the statement's first word, in lower case.
	word    string
	params  []json.RawMessage
	write   bool
	timeout time.Duration
	maxRows int
	// role is the one to run it as; empty for the connection's own.
	role string
}

func parseSQLInput(raw json.RawMessage) (*sqlInput, error) {
	f, err := objectFields(inputPath, raw, "sql", "params", "write", "timeout", "max_rows")
	if err != nil {
		return nil, err
	}
	in := &sqlInput{}
	if in.statement, err = f.requiredText("sql"); err != nil {
		return nil, err
	}
	if in.word, err = checkStatement(in.statement); err != nil {
		return nil, err
	}
	if in.params, err = f.list("params"); err != nil {
		return nil, err
	}
	if in.write, err = f.flag("write", false); err != nil {
		return nil, err
	}
	if in.timeout, err = f.duration("timeout", defaultSQLTimeout, maxSQLTimeout); err != nil {
		return nil, err
	}
	if in.maxRows, err = f.count("max_rows", defaultMaxRows, maxMaxRows); err != nil {
		return nil, err
	}
	return in, nil
}

// refusedWords begin statements that act on the transaction or the session,
// which are not the node's own, or that speak another protocol (COPY). This
// gives a clear error; that a node cannot leave its transaction is checked
// after the statement as well.
var refusedWords = []string{
	"abort", "begin", "close", "commit", "copy", "deallocate", "declare", "discard", "end", "execute", "fetch", "listen",
	"load", "move", "prepare", "release", "reset", "rollback", "savepoint", "set", "start", "unlisten",
}

// checkStatement returns the first word of a statement that a node may run.
func checkStatement(statement string) (string, error) {
	if len(statement) > maxStatement {
		return "", badInput("sql: %d bytes are over the limit of %d", len(statement), maxStatement)
	}
	if strings.IndexByte(statement, 0) >= 0 {
		return "", badInput("sql: PostgreSQL knows no character U+0000")
	}
	word := firstWord(statement)
	if word == "" && skipBlank(statement) == "" {
		return "", badInput("sql: there is no statement in it")
	}
	if slices.Contains(refusedWords, word) {
		return "", badInput("sql: %s cannot run in a node: each node is one statement in a transaction of its own on a shared connection",
			strings.ToUpper(word))
	}
	return word, nil
}

// plainChanges begin statements that change data and nothing else, unless a function in them does.
var plainChanges = []string{"insert", "update", "delete", "merge", "with"}

// endsConnection reports whether a node may leave something on its session that is not found: those that run code of
// their own, and writes that exist to call functions.
func (in *sqlInput) endsConnection() bool {
	return in.word == "do" || in.word == "call" || in.write && !slices.Contains(plainChanges, in.word)
}

func firstWord(statement string) string {
	rest := skipBlank(statement)
	end := 0
	for end < len(rest) && ('a' <= rest[end]|0x20 && rest[end]|0x20 <= 'z') {
		end++
	}
	return strings.ToLower(rest[:end])
}

// skipBlank returns what follows white space, comments, and the parentheses and
// semicolons that may stand before a statement.
func skipBlank(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n\f\v;(")
		switch {
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			s = skipComment(s)
		default:
			return s
		}
	}
}

// skipComment returns what follows the comment at the start of s; comments nest.
func skipComment(s string) string {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
		}
		if depth == 0 {
			return s[i+1:]
		}
	}
	return ""
}
