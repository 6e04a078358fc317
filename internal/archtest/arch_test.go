// Package archtest holds the architecture to what docs/ARCHITECTURE.md draws:
// dependencies flow in one direction, and a library has one home.
//
// # Guarantees
//
//   - No package imports one of its own layer or of a higher one: TestLayers_FlowInOneDirection.
//   - River, pglogrepl and test libraries stay where they belong: TestLibraries_HaveOneHome.
//   - The graph is pure: TestGraph_IsPure.
//   - Guarantees name tests that are there: TestGuarantees_NameTestsThatExist.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pgexec/runtime/"

// layers are the module's packages from the bottom up. A package imports only
// packages of lower layers; one layer's packages do not know each other. A name
// that ends in "/..." is a tree whose packages may import each other.
var layers = [][]string{
	{"proto/pgexec/v1", "sql", "schema", "internal/pgserver", "internal/doctest", "internal/slab", "internal/target", "pgexec/agent/fakemodel"},
	{"pgexec/graph", "internal/pgtest", "internal/pgserver/bindir"},
	{"pgexec/runlog", "pgexec/blob"},
	{"pgexec/ownership", "pgexec/wake", "pgexec/feed", "pgexec/throttle", "pgexec/usage"},
	{"pgexec/executor"},
	{"pgexec/runtime"},
	{"pgexec"},
	{"pgexec/kinds/...", "pgexec/httpapi", "pgexec/pgexectest"},
	{"pgexec/agent/..."},
	{"cmd/..."},
	{"bench/..."},
}

// serverUsers may import internal/pgserver: what runs a server is no part of the runtime.
var serverUsers = []string{"internal/pgtest", "internal/pgserver/bindir", "cmd/...", "bench/...", "pgexec/pgexectest"}

// testPackages are for tests, so they may reach test libraries.
var testPackages = []string{"internal/pgtest", "internal/doctest", "pgexec/pgexectest", "bench/..."}

// homes are the only packages that import a library directly.
var homes = []struct {
	library string
	in      []string
}{
	{"github.com/riverqueue/river", []string{"pgexec/wake", "schema"}},
	{"github.com/jackc/pglogrepl", []string{"pgexec/feed"}},
	{module + "internal/pgserver", serverUsers},
	{module + "internal/pgtest", testPackages},
}

// testLibraries never reach a package that is not for tests, not even through others.
var testLibraries = []string{
	"testing", "github.com/testcontainers/testcontainers-go", "go.uber.org/goleak", "pgregory.net/rapid",
}

type pkg struct {
	ImportPath string
	GoFiles    []string // without tests
	Imports    []string
	Deps       []string
}

// name is the path within the module; "pgexec" for the public package.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module) }

// packages are this module's packages without their tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,GoFiles,Imports,Deps", module+"...")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var own []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, module) && len(p.GoFiles) > 0 {
			own = append(own, p)
		}
	}
	if len(own) < 5 {
		t.Fatalf("found only %d packages", len(own))
	}
	return own
}

// matches tells whether a package is a named one or belongs to a named tree.
func matches(name string, patterns []string) (string, bool) {
	for _, pattern := range patterns {
		tree, isTree := strings.CutSuffix(pattern, "/...")
		if name == tree || isTree && strings.HasPrefix(name, tree+"/") {
			return pattern, true
		}
	}
	return "", false
}

func layerOf(name string) (layer int, pattern string) {
	for i, patterns := range layers {
		if pattern, ok := matches(name, patterns); ok {
			return i, pattern
		}
	}
	return -1, ""
}

// violation says what is wrong with one import, or nothing.
func violation(from, to string) string {
	fromLayer, fromPattern := layerOf(from)
	toLayer, toPattern := layerOf(to)
	switch {
	case fromLayer < 0:
		return from + " has no layer: give it one in internal/archtest"
	case toLayer < 0:
		return to + " has no layer: give it one in internal/archtest"
	case toLayer < fromLayer:
		return ""
	case toLayer == fromLayer && fromPattern == toPattern && strings.HasSuffix(fromPattern, "/..."):
		return ""
	case toLayer == fromLayer:
		return from + " imports its sibling " + to
	default:
		return from + " imports " + to + ", which is above it"
	}
}

func TestLayers_FlowInOneDirection(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if layer, _ := layerOf(p.name()); layer < 0 {
			t.Errorf("%s has no layer: give it one in internal/archtest", p.name())
		}
		for _, imported := range p.Imports {
			to, own := strings.CutPrefix(imported, module)
			if !own {
				continue
			}
			if wrong := violation(p.name(), to); wrong != "" {
				t.Error(wrong)
			}
		}
	}
}

func TestLayers_BackEdgesAndSiblingsAreSeen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		from, to string
		allowed  bool
	}{
		{"pgexec/runlog", "pgexec/graph", true},
		{"pgexec/executor", "proto/pgexec/v1", true},
		{"cmd/pgexec", "cmd/pgexec/internal/demo", true},
		{"pgexec/kinds", "pgexec", true},
		{"pgexec/graph", "pgexec/runlog", false},
		{"pgexec/wake", "pgexec/feed", false},
		{"pgexec", "pgexec/kinds", false},
		{"pgexec/httpapi", "pgexec/kinds", false},
		{"pgexec/util", "pgexec/graph", false},
		{"schema", "bench/append", false},
	} {
		if wrong := violation(tc.from, tc.to); (wrong == "") != tc.allowed {
			t.Errorf("%s -> %s: %q, want allowed %v", tc.from, tc.to, wrong, tc.allowed)
		}
	}
}

func TestLibraries_HaveOneHome(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imported := range p.Imports {
			for _, home := range homes {
				within := imported == home.library || strings.HasPrefix(imported, home.library+"/")
				if _, ok := matches(p.name(), home.in); within && !ok && p.ImportPath != imported {
					t.Errorf("%s imports %s, which belongs in %s", p.name(), imported, strings.Join(home.in, ", "))
				}
			}
		}
		if _, ok := matches(p.name(), testPackages); ok {
			continue
		}
		for _, dep := range p.Deps {
			if slices.ContainsFunc(testLibraries, func(l string) bool { return dep == l || strings.HasPrefix(dep, l+"/") }) {
				t.Errorf("%s depends on %s, which is for tests", p.name(), dep)
			}
		}
	}
}

func TestGraph_IsPure(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.name() != "pgexec/graph" {
			continue
		}
		for _, imported := range p.Imports {
			impure := []string{"context", "time", "os", "net", "math/rand", "math/rand/v2", "log/slog"}
			if slices.Contains(impure, imported) || strings.HasPrefix(imported, "github.com/jackc/") {
				t.Errorf("pgexec/graph imports %s: it takes records and gives a frontier, without a clock or I/O", imported)
			}
		}
	}
}
