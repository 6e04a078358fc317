package schema

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one numbered step of our schema: the files NNN_name.up.sql and NNN_name.down.sql.
type migration struct {
	version  int
	name     string
	up, down string
}

// loadMigrations reads the migrations of fsys in order. Versions start at 1 and have no gaps, and each
// has both directions; anything else is an error.
func loadMigrations(fsys fs.FS) ([]migration, error) {
	files, err := fs.Glob(fsys, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	byVersion := make(map[int]*migration)
	for _, file := range files {
		version, name, up, err := parseName(path.Base(file))
		if err != nil {
			return nil, err
		}
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		m := byVersion[version]
		if m == nil {
			m = &migration{version: version, name: name}
			byVersion[version] = m
		}
		if m.name != name {
			return nil, fmt.Errorf("migration %d has two names: %q and %q", version, m.name, name)
		}
		if up {
			m.up = string(text)
		} else {
			m.down = string(text)
		}
	}
	return orderMigrations(byVersion)
}

// parseName takes NNN_name.up.sql or NNN_name.down.sql apart.
func parseName(file string) (version int, name string, up bool, err error) {
	base, up := strings.CutSuffix(file, ".up.sql")
	if !up {
		var down bool
		if base, down = strings.CutSuffix(file, ".down.sql"); !down {
			return 0, "", false, fmt.Errorf("migration file %q ends neither in .up.sql nor in .down.sql", file)
		}
	}
	number, name, ok := strings.Cut(base, "_")
	version, convErr := strconv.Atoi(number)
	if !ok || convErr != nil || len(number) != 3 || name == "" {
		return 0, "", false, fmt.Errorf("migration file %q is not named NNN_name", file)
	}
	return version, name, up, nil
}

func orderMigrations(byVersion map[int]*migration) ([]migration, error) {
	ordered := make([]migration, 0, len(byVersion))
	for _, m := range byVersion {
		if m.up == "" || m.down == "" {
			return nil, fmt.Errorf("migration %d (%s) lacks a direction", m.version, m.name)
		}
		ordered = append(ordered, *m)
	}
	slices.SortFunc(ordered, func(a, b migration) int { return cmp.Compare(a.version, b.version) })
	for i, m := range ordered {
		if m.version != i+1 {
			return nil, fmt.Errorf("migration %d is missing", i+1)
		}
	}
	return ordered, nil
}

// migrations are those built into this binary.
func migrations() []migration {
	ms, err := loadMigrations(migrationFiles)
	if err != nil {
		panic("schema: embedded migrations: " + err.Error())
	}
	return ms
}

// riverMigrations are River's, as built into this binary.
func riverMigrations() []rivermigrate.Migration {
	m, err := rivermigrate.New(riverpgxv5.New(nil), riverConfig())
	if err != nil {
		panic("schema: River's migrations: " + err.Error())
	}
	return m.AllVersions()
}

// Version is the version of our schema that this binary needs.
func Version() int { return len(migrations()) }

// RiverVersion is the version of River's schema that this binary needs.
func RiverVersion() int {
	all := riverMigrations()
	return all[len(all)-1].Version
}

// Hash identifies the text of all migrations, ours and River's: databases made by Up have the same
// schema exactly when the hash is the same.
func Hash() string {
	h := sha256.New()
	for _, m := range migrations() {
		fmt.Fprintf(h, "%d %s\n%d %s\n%d %s\n", m.version, m.name, len(m.up), m.up, len(m.down), m.down)
	}
	for _, m := range riverMigrations() {
		fmt.Fprintf(h, "%d\n%d %s\n", m.Version, len(m.SQLUp), m.SQLUp)
	}
	return hex.EncodeToString(h.Sum(nil))
}
