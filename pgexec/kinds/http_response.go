package kinds

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxResponseBody bounds the body after decompression, and maxHTTPOutput what it and the headers take as JSON.
	maxResponseBody = 16 << 20
	maxHTTPOutput   = 2 * maxResponseBody
	// maxExcerpt bounds what an error quotes of a body.
	maxExcerpt = 1 << 10
)

// readOutput reads the answer to a request that succeeded.
func readOutput(resp *http.Response) (json.RawMessage, error) {
	tooLarge := func(size string) error {
		return permanent(codeTooLarge, "%s answered with a body of %s bytes, over the limit of %d", describe(resp), size, maxResponseBody)
	}
	if resp.ContentLength > maxResponseBody && resp.Request.Method != http.MethodHead {
		return nil, tooLarge(strconv.FormatInt(resp.ContentLength, 10))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBody+1))
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if len(body) > maxResponseBody {
		return nil, tooLarge("more than " + strconv.Itoa(maxResponseBody))
	}
	out := httpOutput(resp, body)
	if len(out) > maxHTTPOutput {
		return nil, permanent(codeTooLarge, "%s answered with a body of %d bytes that takes, with its headers, %d bytes as JSON, over the limit of %d",
			describe(resp), len(body), len(out), maxHTTPOutput)
	}
	return out, nil
}

// httpOutput is {"status", "headers", and "body" or "body_base64"}.
func httpOutput(resp *http.Response, body []byte) json.RawMessage {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"status":%d,"headers":`, resp.StatusCode)
	appendHeaders(&b, resp.Header)
	switch {
	case !utf8.Valid(body):
		b.WriteString(`,"body_base64":"`)
		b.WriteString(base64.StdEncoding.EncodeToString(body))
		b.WriteByte('"')
	case isJSONType(resp.Header.Get("Content-Type")) && json.Valid(body):
		b.WriteString(`,"body":`)
		b.Write(body)
	default:
		b.WriteString(`,"body":`)
		appendJSONString(&b, string(body))
	}
	b.WriteByte('}')
	return b.Bytes()
}

// appendHeaders writes names in lower case, as a reference needs one spelling,
// and the values of one name joined as RFC 9110 allows; cookies cannot be joined
// and are a list.
func appendHeaders(b *bytes.Buffer, header http.Header) {
	b.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(header)) {
		if i > 0 {
			b.WriteByte(',')
		}
		appendJSONString(b, strings.ToLower(name))
		b.WriteByte(':')
		if name != "Set-Cookie" {
			appendJSONString(b, strings.Join(header[name], ", "))
			continue
		}
		b.WriteByte('[')
		for j, cookie := range header[name] {
			if j > 0 {
				b.WriteByte(',')
			}
			appendJSONString(b, cookie)
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
}

func isJSONType(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}

// excerpt quotes the beginning of a body for an error, on one line.
func excerpt(resp *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxExcerpt))
	if err != nil && len(body) == 0 {
		return ""
	}
	text := strings.ToValidUTF8(string(body), "")
	if strings.Contains(text, "\x00") || len(body)-len(text) >= utf8.UTFMax {
		return ": (binary body)" // more is missing than a character cut at the end
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	return ": " + text
}

// describe names a request in an error.
func describe(resp *http.Response) string {
	return resp.Request.Method + " " + plainURL(resp.Request.URL)
}

// plainURL leaves out what may be a secret: query and user.
func plainURL(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.RawQuery != "" {
		return clip(plain.String(), 300) + "?…"
	}
	return clip(plain.String(), 300)
}

// retryAfter reads the header of that name, seconds or a date. A date is
// compared with the Date of the same answer: both are of the server's clock.
func retryAfter(resp *http.Response) time.Duration {
	value := strings.TrimSpace(resp.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
