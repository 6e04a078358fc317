package definition

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Secret says where a replica finds a secret: in a variable of its environment or in a file.
type Secret struct {
	Env  string `json:"env,omitempty"`
	File string `json:"file,omitempty"`
}

// Header is the value of an HTTP header: a text, or a secret and what comes before it.
type Header struct {
	Text   string
	Secret *Secret
	Prefix string
}

// secretHeader is how a header with a secret is written.
type secretHeader struct {
	Secret
	Prefix string `json:"prefix,omitempty"`
}

// UnmarshalJSON reads a text, or an object with a secret.
func (h *Header) UnmarshalJSON(raw []byte) error {
	*h = Header{}
	if raw[0] == '"' {
		return json.Unmarshal(raw, &h.Text)
	}
	var s secretHeader
	err := json.Unmarshal(raw, &s)
	h.Secret, h.Prefix = &s.Secret, s.Prefix
	return err
}

// MarshalJSON writes what UnmarshalJSON reads.
func (h Header) MarshalJSON() ([]byte, error) {
	if h.Secret == nil {
		return json.Marshal(h.Text)
	}
	return json.Marshal(secretHeader{*h.Secret, h.Prefix})
}

// DefaultSecretsDir is where files with secrets are unless a replica says otherwise.
const DefaultSecretsDir = "/run/secrets"

// maxSecret bounds a file with a secret, in bytes.
const maxSecret = 64 << 10

// Secrets is what a replica lets definitions name. Whoever may write
// pgexec.agents can send what is named here to any address that an agent may
// reach, so it is nothing else of the environment and of the file system.
type Secrets struct {
	// Env are the variables that may be named although they end in neither _API_KEY nor _TOKEN,
	// or begin with PGEXEC_: those are secrets of the replica itself.
	Env []string
	// Dir has the files that may be named. Defaults to [DefaultSecretsDir].
	Dir string
}

// Resolve reads a secret, without blanks and line breaks around it. No error shows any part of one.
func (s *Secrets) Resolve(ref *Secret) (string, error) {
	if ref.Env != "" {
		return s.variable(ref.Env)
	}
	return s.file(ref.File)
}

// Headers resolves the secrets in headers.
func (s *Secrets) Headers(headers map[string]Header) (map[string]string, error) {
	resolved := make(map[string]string, len(headers))
	for name, h := range headers {
		value := h.Text
		if h.Secret != nil {
			secret, err := s.Resolve(h.Secret)
			if err != nil {
				return nil, fmt.Errorf("header %s: %w", name, err)
			}
			value = h.Prefix + secret
		}
		if strings.ContainsFunc(value, notOfHeader) {
			return nil, fmt.Errorf("header %s: its value has a line break or another character that no header can have", name)
		}
		resolved[name] = value
	}
	return resolved, nil
}

// SecretsIn are the secrets that headers have, without what comes before them.
func SecretsIn(headers map[string]Header, resolved map[string]string) []string {
	var found []string
	for _, name := range sortedKeys(headers) {
		if h := headers[name]; h.Secret != nil {
			found = append(found, strings.TrimPrefix(resolved[name], h.Prefix))
		}
	}
	return found
}

func (s *Secrets) variable(name string) (string, error) {
	ofProviders := (strings.HasSuffix(name, "_API_KEY") || strings.HasSuffix(name, "_TOKEN")) && !strings.HasPrefix(name, "PGEXEC_")
	if !ofProviders && !slices.Contains(s.Env, name) {
		return "", fmt.Errorf("variable %s may not be used: its name does not end in _API_KEY or _TOKEN, or begins with PGEXEC_, and is not one that this replica is configured to give", name)
	}
	value := strings.TrimSpace(os.Getenv(name))
	if value == "" {
		return "", fmt.Errorf("variable %s is not set in the environment of this replica", name)
	}
	return value, nil
}

// file reads below the directory only, wherever links lead.
func (s *Secrets) file(path string) (string, error) {
	dir := s.Dir
	if dir == "" {
		dir = DefaultSecretsDir
	}
	name, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("file %s may not be used: it is not below %s, this replica's directory of secrets", path, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("directory of secrets: %w", err)
	}
	defer root.Close()
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("file %s does not exist on this replica", path)
	} else if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	value := strings.TrimSpace(string(raw))
	switch {
	case err != nil:
		return "", fmt.Errorf("secret: %w", err)
	case len(raw) > maxSecret:
		return "", fmt.Errorf("file %s is over the limit of %d bytes for a secret", path, maxSecret)
	case value == "":
		return "", fmt.Errorf("file %s is empty", path)
	}
	return value, nil
}
