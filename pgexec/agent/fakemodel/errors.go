package fakemodel

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// problem is an answer with an error, before it has either API's form.
type problem struct {
	failure
	param string // OpenAI's only
}

// invalid is a request that the real API refuses with 400.
func invalid(format string, args ...any) *problem {
	return &problem{failure: failure{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}}
}

// invalidParam is invalid with the place that OpenAI's errors name.
func invalidParam(param, format string, args ...any) *problem {
	p := invalid(format, args...)
	p.param = param
	return p
}

// usual is what the APIs say with a status, where the script does not.
type usual struct{ openaiType, openaiCode, anthropicType, message string }

var usuals = map[int]usual{
	400: {"invalid_request_error", "", "invalid_request_error", "The request is not valid."},
	401: {"invalid_request_error", "invalid_api_key", "authentication_error", "The API key is not valid."},
	403: {"invalid_request_error", "", "permission_error", "The API key may not use this resource."},
	404: {"invalid_request_error", "model_not_found", "not_found_error", "The model does not exist."},
	413: {"invalid_request_error", "", "request_too_large", "The request is too large."},
	429: {"requests", "rate_limit_exceeded", "rate_limit_error", "The rate limit was reached. Try again later."},
	529: {"overloaded_error", "", "overloaded_error", "Overloaded"},
}

func usualFor(status int) usual {
	u, ok := usuals[status]
	switch {
	case ok:
		return u
	case status < 500:
		return usuals[http.StatusBadRequest]
	}
	return usual{"server_error", "", "api_error", "The server had an error while processing the request."}
}

// body is the error in the API's form.
func (p *problem) body(api, requestID string) []byte {
	if p.Body != "" {
		return []byte(p.Body)
	}
	u := usualFor(p.Status)
	message := first(p.Message, u.message)
	if api == apiAnthropic {
		return mustEncode(object{
			"type":       "error",
			"error":      object{"type": first(p.Type, u.anthropicType), "message": message},
			"request_id": requestID,
		})
	}
	code := p.Code
	if p.Type == "" {
		code = first(p.Code, u.openaiCode)
	}
	return mustEncode(object{"error": object{
		"message": message,
		"type":    first(p.Type, u.openaiType),
		"param":   orNull(p.param),
		"code":    orNull(code),
	}})
}

// write answers with the error.
func (p *problem) write(w http.ResponseWriter, api, requestID string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if d := time.Duration(p.RetryAfter); d > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
		if d%time.Second != 0 {
			h.Set("Retry-After-Ms", strconv.FormatInt(d.Milliseconds(), 10))
		}
	}
	for name, value := range p.Headers {
		h.Set(name, value)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(p.body(api, requestID)) // a client that has gone needs no answer
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
