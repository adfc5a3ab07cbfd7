package archtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pkg returns a package of this module.
func pkg(imports ...string) node { return node{own: true, imports: imports} }

func TestCheckFindsWhatBreaksARule(t *testing.T) {
	t.Parallel()
	const mod = modulePath
	rules := []rule{
		{packages: "./a", reach: []string{"./b", "ext/..."}, never: []string{"testing/..."}, why: "a is small"},
		{packages: "./b", reach: []string{"..."}, why: "b is free"},
		{packages: "./tree/...", reach: []string{"..."}, never: []string{"./a"}, why: "trees stand alone"},
	}
	for name, test := range map[string]struct {
		graph graph
		want  []string
	}{
		"all that is allowed": {
			graph: graph{
				mod + "/a":    pkg("fmt", mod+"/b", "ext", "ext/deep"),
				mod + "/b":    pkg("ext"),
				"ext":         {imports: []string{"fmt"}},
				"ext/deep":    {},
				"fmt":         {std: true},
				mod + "/tree": pkg(mod + "/b"),
			},
		},
		"a module that is not listed": {
			graph: graph{mod + "/a": pkg("extra"), "extra": {}},
			want:  []string{mod + "/a must not import extra: a is small\n\t" + mod + "/a\n\timports extra"},
		},
		"through a package that may do so itself": {
			graph: graph{mod + "/a": pkg(mod + "/b"), mod + "/b": pkg("other"), "other": {}},
			want: []string{mod + "/a must not import other: a is small\n\t" +
				mod + "/a\n\timports " + mod + "/b\n\timports other"},
		},
		"a standard package, by the shortest way": {
			graph: graph{
				mod + "/a":     pkg("ext", "net"),
				"ext":          {imports: []string{"net"}},
				"net":          {std: true, imports: []string{"testing/slow"}},
				"testing/slow": {std: true},
			},
			want: []string{mod + "/a must not import testing/slow: a is small\n\t" +
				mod + "/a\n\timports net\n\timports testing/slow"},
		},
		"never is stronger than reach": {
			graph: graph{mod + "/tree/leaf": pkg(mod + "/a"), mod + "/a": pkg()},
			want: []string{mod + "/tree/leaf must not import " + mod + "/a: trees stand alone\n\t" +
				mod + "/tree/leaf\n\timports " + mod + "/a"},
		},
		"a package without a rule": {
			graph: graph{mod + "/new": pkg()},
			want:  []string{mod + "/new has 0 rules, want 1: add what it may import to internal/archtest"},
		},
		"a pattern matches whole path elements": {
			graph: graph{mod + "/treetop": pkg()},
			want:  []string{mod + "/treetop has 0 rules, want 1: add what it may import to internal/archtest"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, check(test.graph, rules)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCheckWantsOneRuleForEachPackage(t *testing.T) {
	t.Parallel()
	g := graph{modulePath + "/a": pkg()}
	got := check(g, []rule{{packages: "./a"}, {packages: "./..."}})
	want := []string{modulePath + "/a has 2 rules, want 1: add what it may import to internal/archtest"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
