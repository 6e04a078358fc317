package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var (
	// ErrUnknownServer is a server without URL that this replica's configuration does not name.
	ErrUnknownServer = errors.New("the server has no URL, and this replica's configuration has no command of that name")

	// ErrTooLarge is a result of more than [MaxResultBytes].
	ErrTooLarge = fmt.Errorf("the result is larger than %d MiB", MaxResultBytes>>20)

	// ErrClosed is a call that [Pool.Close] ended or refused.
	ErrClosed = errors.New("the pool of MCP sessions is closed")

	// errBusy is a server that asks for nothing but another call, again and again.
	errBusy = errors.New("the server keeps asking to be called again later")
)

// Error is a call, or a list of tools, that brought no result. An error of the
// tool itself is a result, see [Result].
type Error struct {
	Server string
	// Tool is empty for a list of tools.
	Tool string
	// Permanent says that the same call cannot succeed later.
	Permanent bool
	// MayHaveRun says that the tool may have taken effect. Without it, it has not.
	MayHaveRun bool
	// RetryAfter is the time that the server asked to be left alone, or 0.
	RetryAfter time.Duration
	// Err is the reason: one of this package's errors, an [*RPCError], a
	// [*StatusError], the cause of the context, or what the connection said.
	Err error

	// lost says that the reason is the session and that another may do.
	lost bool
}

func (e *Error) Error() string {
	what := "MCP server " + e.Server
	if e.Tool != "" {
		what += ", tool " + e.Tool
	}
	return what + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// add says more about the reason.
func (e *Error) add(why error) {
	if why != nil {
		e.Err = fmt.Errorf("%w; %w", e.Err, why)
	}
}

// RPCError is a server's refusal of a request, as opposed to the failure of a tool.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *RPCError) Error() string {
	return fmt.Sprintf("the server answered with error %d: %s", e.Code, clip(e.Message))
}

// refused are the codes with which a server says that it did not take the request.
func (e *RPCError) refused() bool {
	switch e.Code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound, jsonrpc.CodeInvalidParams,
		sdk.CodeHeaderMismatch, sdk.CodeMissingRequiredClientCapabilities, sdk.CodeUnsupportedProtocolVersion,
		sdk.CodeURLElicitationRequired:
		return true
	}
	return false
}

// StatusError is an HTTP status that is no success, from a server that said no more.
type StatusError struct {
	Code int
	// RetryAfter is the header of that name, or 0.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answered %d %s", e.Code, http.StatusText(e.Code))
}

// refused is a status with which a server says that it did not take the request.
// A gateway in front of it may say 408 or 5xx of a request that it had passed on.
func (e *StatusError) refused() bool {
	return e.Code < 500 && e.Code != http.StatusRequestTimeout
}

// ofGateway is a status that what stands before a server gives in its place.
func (e *StatusError) ofGateway() bool {
	switch e.Code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// temporary is a status that another time may not bring.
func (e *StatusError) temporary() bool {
	switch e.Code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.Code >= 500
}

// maxErrorText bounds what a server's own words add to an error or a log line, in bytes.
const maxErrorText = 2000

func clip(s string) string {
	if len(s) > maxErrorText {
		return s[:maxErrorText] + "…"
	}
	return s
}

// keepsSession says that the error leaves the session as it was.
func (e *Error) keepsSession() bool {
	var rpc *RPCError
	var status *StatusError
	switch {
	case e.lost:
		return false
	case errors.As(e.Err, &status):
		return status.refused()
	default:
		return errors.As(e.Err, &rpc) || errors.Is(e.Err, ErrTooLarge)
	}
}

func (e *Error) isCode(code int64) bool {
	var rpc *RPCError
	return errors.As(e.Err, &rpc) && rpc.Code == code
}
