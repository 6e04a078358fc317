package llm_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgexec/runtime/pgexec/agent/llm"
)

// wireEnd is the server's end of a connection in memory.
type wireEnd struct {
	net.Conn
	t *testing.T
}

func (w *wireEnd) send(s string) {
	_, _ = io.WriteString(w.Conn, s) // a client that went away is what some tests want
}

// wait returns when the client hangs up.
func (w *wireEnd) wait() { _, _ = io.Copy(io.Discard, w.Conn) }

func (w *wireEnd) close() { w.Conn.Close() }

// inMemory is a client whose one connection goes to serve, which is called once
// the request has arrived.
func inMemory(t *testing.T, p llm.Provider, serve func(*wireEnd), change ...func(*llm.Config)) *llm.Client {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		wg.Go(func() {
			defer ours.Close()
			req, err := http.ReadRequest(bufio.NewReader(ours))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			serve(&wireEnd{ours, t})
		})
		return theirs, nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	c := llm.Config{Provider: p, BaseURL: "http://model.test", Model: "m", HTTPClient: &http.Client{Transport: transport}}
	for _, f := range change {
		f(&c)
	}
	client, err := llm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

func TestDo_SilenceAndLengthEndATurn(t *testing.T) {
	t.Parallel()
	keepAlive := func(w *wireEnd) {
		w.send(streamHead)
		for range 1000 {
			time.Sleep(59 * time.Second) // the bubble's time
			w.send(": ping\n\n")
		}
	}
	for name, tc := range map[string]struct {
		serve func(*wireEnd)
		want  llm.Kind
		after time.Duration
	}{
		"no head":             {(*wireEnd).wait, llm.Idle, time.Minute},
		"silence":             {func(w *wireEnd) { w.send(streamHead + "data: {}\n\n"); w.wait() }, llm.Idle, time.Minute},
		"nothing but pings":   {keepAlive, llm.Deadline, 10 * time.Minute},
		"JSON that is no end": {func(w *wireEnd) { w.send("HTTP/1.1 200 x\r\nContent-Type: application/json\r\n\r\n{"); w.wait() }, llm.Idle, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range []llm.Provider{llm.OpenAI, llm.Anthropic} {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					_, err := inMemory(t, p, tc.serve).Do(t.Context(), hello(), nil)
					var e *llm.Error
					if !errors.As(err, &e) || e.Kind != tc.want || e.Permanent() {
						t.Errorf("%s: got %v, want %s", p, err, tc.want)
					}
					if took := time.Since(began); took != tc.after {
						t.Errorf("%s: took %s, want %s", p, took, tc.after)
					}
				})
			}
		})
	}
}

func TestDo_AReaderThatTakesItsTimeIsNotSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := inMemory(t, llm.OpenAI, func(w *wireEnd) {
			w.send(streamHead + chunks(delta(`{"content":"a"}`), delta(`{"content":"b"}`), finish("stop")))
		})
		turn, err := client.Do(t.Context(), hello(), func(llm.Delta) { time.Sleep(2 * time.Minute) })
		if err != nil || turn.Text != "ab" {
			t.Errorf("got %+v, %v", turn, err)
		}
	})
}

func TestDo_WhatBreaksBehindTheEndMarkerTakesNothingAway(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*wireEnd){"cut": func(*wireEnd) {}, "silence": (*wireEnd).wait} {
		synctest.Test(t, func(t *testing.T) {
			client := inMemory(t, llm.OpenAI, func(w *wireEnd) {
				w.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 10000\r\n\r\n")
				w.send("data: " + delta(`{"content":"hi"}`) + "\n\ndata: " + finish("stop") + "\n\n")
				end(w)
			})
			turn, err := client.Do(t.Context(), hello(), nil)
			if err != nil || turn.Text != "hi" || !turn.Usage.Estimated {
				t.Errorf("%s: got %+v, %v", name, turn, err)
			}
		})
	}
}
