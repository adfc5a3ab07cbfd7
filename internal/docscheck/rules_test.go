package docscheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var (
	ruleID = regexp.MustCompile(`\b[SLCTM][0-9]{1,2}\b`)
	// A rule is listed where its id begins a line, a list item or a table row.
	listedRule = regexp.MustCompile(`(?m)^[-*#| ]*([SLCTM][0-9]{1,2})\b`)
	// A test is named after the rule that it holds.
	testName = regexp.MustCompile(`^(?:Test|Fuzz|Example)([SLCTM][0-9]{1,2})(?:_|$)`)
)

// checkRules compares the rules that docs/invariants.md lists with those that
// the code names. Each must be named by a test, but for those in untested.
func checkRules(fsys fs.FS, untested map[string]string) ([]string, error) {
	doc, err := fs.ReadFile(fsys, "docs/invariants.md")
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, m := range listedRule.FindAllStringSubmatch(string(doc), -1) {
		listed[m[1]] = true
	}
	sources, err := files(fsys, ".go")
	if err != nil {
		return nil, err
	}

	var problems []string
	tested := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if strings.HasPrefix(name, "internal/docscheck/") {
			continue
		}
		ids, err := namedRules(name, sources[name])
		if err != nil {
			return nil, err
		}
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			if !listed[id] {
				problems = append(problems, fmt.Sprintf("%s names rule %s, which docs/invariants.md does not list", name, id))
			}
			if strings.HasSuffix(name, "_test.go") || inSuite(name) {
				tested[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		switch _, exempt := untested[id]; {
		case tested[id] && exempt:
			problems = append(problems, fmt.Sprintf("rule %s has a test now: take it out of untested", id))
		case !tested[id] && !exempt:
			problems = append(problems, fmt.Sprintf("no test names rule %s", id))
		}
	}
	return problems, nil
}

// inSuite says whether a file is part of the suite that tests stores, caches and
// policies.
func inSuite(name string) bool { return strings.HasPrefix(name, "conformance/") }

// namedRules returns the rules that a Go file names: in comments, in the names
// of tests and, in the conformance suite, in strings.
func namedRules(name, source string) (map[string]bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	add := func(text string) {
		for _, id := range ruleID.FindAllString(text, -1) {
			ids[id] = true
		}
	}
	for _, group := range file.Comments {
		add(group.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if m := testName.FindStringSubmatch(n.Name.Name); m != nil {
				add(m[1])
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && inSuite(name) {
				add(n.Value)
			}
		}
		return true
	})
	return ids, nil
}

func TestCheckRules(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"docs/invariants.md": {Data: []byte("# Rules\n\n| **S1** | sums |\n| S2 | reads; unlike S9 |\n\n- **L1**: fast\n- L2 exact\n- M1 said\n- T1 any\n")},
		"a/a.go":             {Data: []byte("package a\n\n// F holds rule L1, and rule L7.\nfunc F() {}\n\nvar s = \"S8\"\n")},
		"a/a_test.go":        {Data: []byte("package a\n\nfunc TestS1_Sums(t *testing.T) {}\n\nfunc TestL2x(t *testing.T) {}\n\n// rule T1\n")},
		"conformance/c.go":   {Data: []byte("package conformance\n\nvar cases = []string{\"S2\", \"S12 of 7\"}\n")},
		"x/testdata/t.go":    {Data: []byte("no Go")},
	}
	got, err := checkRules(fsys, map[string]string{"M1": "later", "T1": "later"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a/a.go names rule L7, which docs/invariants.md does not list",
		"conformance/c.go names rule S12, which docs/invariants.md does not list",
		"no test names rule L1",
		"no test names rule L2",
		"rule T1 has a test now: take it out of untested",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestCheckRulesNeedsTheDocument(t *testing.T) {
	t.Parallel()
	if _, err := checkRules(fstest.MapFS{}, nil); err == nil {
		t.Error("no error without docs/invariants.md")
	}
}
