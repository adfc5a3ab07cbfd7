package docscheck

import (
	"context"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	goBlock      = regexp.MustCompile("(?ms)^```go\\b[^\n]*\n(.*?)^```")
	moduleClause = regexp.MustCompile(`(?m)^module (\S+)$`)
)

// checkGoBlocks returns what is wrong with the Go code that documents below dir
// show: programs must compile and pass vet as they would in a user's module, and
// fragments must be syntactically right. It makes that module in tmp.
func checkGoBlocks(ctx context.Context, dir, tmp string) ([]string, error) {
	fsys := os.DirFS(dir)
	docs, err := files(fsys, ".md")
	if err != nil {
		return nil, err
	}
	// The result depends on the module's code. The go command reuses a test's
	// result until a file changes that the test itself has opened.
	if _, err := files(fsys, ".go"); err != nil {
		return nil, err
	}

	var problems []string
	programs := 0
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		doc := docs[name]
		for _, m := range goBlock.FindAllStringSubmatchIndex(doc, -1) {
			block := doc[m[2]:m[3]]
			line := strings.Count(doc[:m[2]], "\n") + 1
			if _, err := format.Source([]byte(block)); err != nil {
				problems = append(problems, fmt.Sprintf("%s:%d: Go block: %v", name, line, err))
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), "", block, parser.PackageClauseOnly); err != nil {
				continue // a fragment
			}
			programs++
			pkg := fmt.Sprintf("%s_line_%d", strings.ReplaceAll(name, "/", "_"), line)
			file := "block.go"
			if strings.Contains(block, "*testing.") {
				file = "block_test.go"
			}
			if err := write(filepath.Join(tmp, pkg, file), block); err != nil {
				return nil, err
			}
		}
	}
	if programs == 0 {
		return problems, nil
	}

	out, err := vetAsUser(ctx, dir, tmp)
	if err != nil {
		problems = append(problems, fmt.Sprintf("programs in documents: %v\n%s", err, out))
	}
	return problems, nil
}

// vetAsUser vets the packages below tmp in a module that requires the one in
// dir.
func vetAsUser(ctx context.Context, dir, tmp string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	gosum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", err
	}
	here, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	user := moduleClause.ReplaceAllString(string(gomod), "module user\n\nrequire $1 v0.0.0") +
		fmt.Sprintf("\nreplace %s => %q\n", moduleClause.FindSubmatch(gomod)[1], here)
	if err := write(filepath.Join(tmp, "go.mod"), user); err != nil {
		return "", err
	}
	if err := write(filepath.Join(tmp, "go.sum"), string(gosum)); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "vet", "./...")
	cmd.Dir = tmp
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

func TestCheckGoBlocks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		block string
		want  string // part of the only problem, or empty
	}{
		"a program": {
			block: "package main\n\nimport \"example.org/lib\"\n\nfunc main() { lib.F() }\n",
		},
		"a test": {
			block: "package lib_test\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { t.Log() }\n",
		},
		"statements": {
			block: "x := unknown.F()\nif x {\n\treturn\n}\n",
		},
		"a program that does not compile": {
			block: "package main\n\nimport \"example.org/lib\"\n\nfunc main() { lib.G() }\n",
			want:  "undefined: lib.G",
		},
		"a program that vet objects to": {
			block: "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Printf(\"%d\\n\", \"x\") }\n",
			want:  "wrong type",
		},
		"broken statements": {
			block: "x := \n}",
			want:  "docs/a.md:3: Go block",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod":    "module example.org/lib\n\ngo 1.26.0\n",
				"go.sum":    "",
				"lib.go":    "package lib\n\nfunc F() {}\n",
				"docs/a.md": "Text\n```go\n" + test.block + "```\n```sh\nno Go\n```\n",
			} {
				if err := write(filepath.Join(dir, file), text); err != nil {
					t.Fatal(err)
				}
			}
			problems, err := checkGoBlocks(t.Context(), dir, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && len(problems) > 0:
				t.Errorf("got problems %q, want none", problems)
			case test.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], test.want)):
				t.Errorf("got problems %q, want one with %q", problems, test.want)
			}
		})
	}
}
