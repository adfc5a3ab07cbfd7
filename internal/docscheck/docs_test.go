// Package docscheck holds the documents against the code, so that neither says
// what the other does not.
package docscheck

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

const root = "../.."

// untested lists the rules that no test names, with the reason.
var untested = map[string]string{
	"L4": "there is no published figure yet",
	"M1": "there is no package telemetry yet",
}

func TestRulesAreListedAndTested(t *testing.T) {
	t.Parallel()
	report(t)(checkRules(os.DirFS(root), untested))
}

func TestTuningStatesTheConfig(t *testing.T) {
	t.Parallel()
	report(t)(checkConfig(os.DirFS(root)))
}

func TestRelativeLinksResolve(t *testing.T) {
	t.Parallel()
	report(t)(checkLinks(os.DirFS(root)))
}

func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	report(t)(checkGoBlocks(t.Context(), root, t.TempDir()))
}

// report returns a function that fails the test with what a check found.
func report(t *testing.T) func(problems []string, err error) {
	return func(problems []string, err error) {
		t.Helper()
		for _, p := range problems {
			t.Error(p)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// files returns the repository's files with an extension and their text, but
// none below a folder named testdata or with a dot.
func files(fsys fs.FS, ext string) (map[string]string, error) {
	texts := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ext:
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		texts[name] = string(text)
		return err
	})
	return texts, err
}
