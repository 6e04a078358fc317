package pgserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// needed are the programs without which a directory is not taken for a server's.
var needed = []string{"initdb", "pg_ctl", "postgres"}

// NotFoundError says that no PostgreSQL server is installed here, where it was
// looked for, and what to install.
type NotFoundError struct {
	Searched []string
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("find PostgreSQL server programs: none in %s; install them: %s",
		strings.Join(e.Searched, ", "), installHint())
}

func installHint() string {
	if runtime.GOOS == "darwin" {
		return "brew install postgresql@17"
	}
	return "apt-get install postgresql (Debian, Ubuntu), dnf install postgresql-server (Fedora), apk add postgresql (Alpine)"
}

// FindBinDir returns the directory of the server programs: that of the initdb
// on PATH, else the newest of the usual places. The error is a *NotFoundError.
func FindBinDir() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// A link on PATH may stand alone: the programs beside its target count.
		if target, err := filepath.EvalSymlinks(initdb); err == nil && complete(filepath.Dir(target)) {
			return filepath.Dir(target), nil
		}
		if complete(filepath.Dir(initdb)) {
			return filepath.Dir(initdb), nil
		}
	}
	patterns := []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/opt/homebrew/opt/postgresql/bin",
		"/usr/local/opt/postgresql/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
	}
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("list %s: %w", pattern, err)
		}
		slices.SortFunc(dirs, func(a, b string) int { return majorOf(b) - majorOf(a) })
		for _, dir := range dirs {
			if complete(dir) {
				return dir, nil
			}
		}
	}
	return "", &NotFoundError{Searched: append([]string{"PATH"}, patterns...)}
}

func complete(dir string) bool {
	for _, name := range needed {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// majorOf is the first number in a path: the version in each of the usual places.
func majorOf(path string) int {
	digits := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, err := strconv.Atoi(digits[0])
	if err != nil {
		return 0
	}
	return n
}
