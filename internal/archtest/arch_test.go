// Package archtest holds the rules on which package may import which.
package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/fleetlimit/fleetlimit"

// A rule says what the packages of the module that match a pattern may reach
// through imports, at any distance, test files left aside. Patterns are written
// as for the go command: "./cache" is a package of this module, and "/..." adds
// all packages below.
type rule struct {
	packages string
	// reach lists what may be reached outside the standard library; "..." is
	// anything.
	reach []string
	// never lists what must not be reached, whatever reach says.
	never []string
	why   string
}

var (
	// core is what the limiter brings along.
	core   = []string{"./limiter", "./cache", "github.com/maypok86/otter/v2/..."}
	stores = slices.Concat(core, []string{"./store"})
	aids   = []string{"./internal/faultstore", "./internal/respproxy"}
	// unwanted must not be linked into users' programs.
	unwanted = slices.Concat(aids, []string{"testing/...", "net/http/...", "github.com/google/go-cmp/..."})
)

var rules = []rule{
	{
		packages: "./cache",
		reach:    []string{"github.com/maypok86/otter/v2/..."},
		never:    unwanted,
		why:      "the cache knows nothing of limits, so that the limiter can use it",
	},
	{
		packages: "./limiter",
		reach:    core,
		never:    unwanted,
		why:      "everybody links the limiter: no client, no telemetry, no store",
	},
	{
		packages: "./store",
		reach:    core,
		never:    unwanted,
		why:      "what stores share must not bring a client along",
	},
	{
		packages: "./store/memory",
		reach:    stores,
		never:    unwanted,
		why:      "choosing one store must not link another",
	},
	{
		packages: "./store/redis",
		reach: slices.Concat(stores, []string{
			"github.com/redis/go-redis/v9/...", "github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys/cpu",
		}),
		never: unwanted,
		why:   "choosing one store must not link another",
	},
	{
		packages: "./store/valkey",
		reach:    slices.Concat(stores, []string{"github.com/valkey-io/valkey-go/...", "golang.org/x/sys/cpu"}),
		never:    unwanted,
		why:      "choosing one store must not link another",
	},
	{
		packages: "./telemetry",
		reach: slices.Concat(core, []string{
			"go.opentelemetry.io/otel/metric/...", "go.opentelemetry.io/otel/attribute/...", "github.com/cespare/xxhash/v2",
		}),
		never: unwanted,
		why:   "the metric API is enough; the SDK and the global provider are the program's choice",
	},
	{
		packages: "./conformance",
		reach:    slices.Concat(core, []string{"github.com/google/go-cmp/..."}),
		never:    []string{"net/http/..."},
		why:      "the suite tests any store, so it knows none",
	},
	{
		packages: "./internal/faultstore",
		reach:    core,
		why:      "a test aid that wraps any store",
	},
	{
		packages: "./internal/respproxy",
		why:      "a test aid that stands before any server",
	},
	{
		packages: "./internal/accesslog",
		never:    unwanted,
		why:      "reading logs needs the standard library only",
	},
	{
		packages: "./internal/exactlog",
		never:    unwanted,
		why:      "the exact log is what limiters are measured by, so it shares nothing with them",
	},
	{
		packages: "./internal/fleetsim/...",
		reach:    slices.Concat(stores, []string{"./store/memory", "./internal/fleetsim/..."}),
		never:    unwanted,
		why:      "the simulator runs the real limiter on the memory store and nothing else",
	},
	{
		packages: "./internal/archtest",
		why:      "only tests",
	},
	{
		packages: "./internal/docscheck",
		why:      "only tests",
	},
	{
		packages: "./examples/...",
		reach:    []string{"..."},
		never:    slices.Concat(aids, []string{"testing/..."}),
		why:      "examples show what users write",
	},
}

func TestImportsKeepTheRules(t *testing.T) {
	t.Parallel()
	g := load(t, "../..")
	for _, problem := range check(g, rules) {
		t.Error(problem)
	}
}

// A graph holds packages by import path.
type graph map[string]node

type node struct {
	own     bool // in this module
	std     bool
	imports []string
}

// check returns what is wrong: imports against the rules, and packages of the
// module for which there is not exactly one rule.
func check(g graph, rules []rule) []string {
	var problems []string
	for _, path := range slices.Sorted(maps.Keys(g)) {
		if !g[path].own {
			continue
		}
		var matching []rule
		for _, r := range rules {
			if match(r.packages, path) {
				matching = append(matching, r)
			}
		}
		if len(matching) != 1 {
			problems = append(problems, fmt.Sprintf("%s has %d rules, want 1: add what it may import to internal/archtest", path, len(matching)))
			continue
		}
		problems = append(problems, matching[0].check(g, path)...)
	}
	return problems
}

// check walks what the package from reaches, nearest first, and returns a
// problem for each package that it must not reach. It does not look behind
// those.
func (r rule) check(g graph, from string) []string {
	var problems []string
	chains := map[string][]string{from: {from}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, path := range g[queue[0]].imports {
			if chains[path] != nil || path == "C" { // cgo, no package
				continue
			}
			chain := append(slices.Clone(chains[queue[0]]), path)
			chains[path] = chain
			if matchAny(r.never, path) || !g[path].std && !matchAny(r.reach, path) {
				problems = append(problems, fmt.Sprintf("%s must not import %s: %s\n\t%s",
					from, path, r.why, strings.Join(chain, "\n\timports ")))
				continue
			}
			queue = append(queue, path)
		}
	}
	return problems
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, path) })
}

func match(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if rest, ok := strings.CutPrefix(pattern, "./"); ok {
		pattern = modulePath + "/" + rest
	}
	if dir, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == dir || strings.HasPrefix(path, dir+"/")
	}
	return path == pattern
}

// load returns the packages of the module in root and all that they import.
func load(t *testing.T, root string) graph {
	t.Helper()
	touch(t, root)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,Standard,Module", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}

	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
			Module     *struct{ Main bool }
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		g[p.ImportPath] = node{own: p.Module != nil && p.Module.Main, std: p.Standard, imports: p.Imports}
	}
}

// touch opens the Go files below root. The go command reuses a test's result
// until a file changes that the test itself has opened, and knows nothing of
// what go list reads.
func touch(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" && d.Name() != "go.mod" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}
