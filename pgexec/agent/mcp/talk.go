package mcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxTalk bounds what one process may add to the log in a minute, in bytes.
const maxTalk = 64 << 10

// talk takes what a process says beside the protocol to the log, without secrets
// and in bounded amounts.
type talk struct {
	logger *slog.Logger
	redact *strings.Replacer
	now    func() time.Time

	mu      sync.Mutex
	since   time.Time
	used    int
	dropped int
	last    string
}

// listen logs what is read, line by line, until its end.
func (t *talk) listen(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxErrorText)
	for {
		part, err := lines.ReadSlice('\n')
		if text := strings.TrimSpace(string(part)); text != "" {
			t.say("stderr", text)
		}
		// The rest of a long line comes as lines of its own.
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// say logs a line, unless there were too many in the last minute.
func (t *talk) say(from, text string) {
	text = clip(t.redact.Replace(text))
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.now(); now.Sub(t.since) >= time.Minute {
		if t.dropped > 0 {
			t.logger.Warn("MCP server said more than is logged", "lines", t.dropped)
		}
		t.since, t.used, t.dropped = now, 0, 0
	}
	t.last = text
	if t.used += len(text); t.used > maxTalk {
		t.dropped++
		return
	}
	t.logger.Info("MCP server says", "from", from, "text", text)
}

// lastWords is the last line that was heard as part of an error, or nil.
func (t *talk) lastWords() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == "" {
		return nil
	}
	return fmt.Errorf("the process said last: %s", t.last)
}
