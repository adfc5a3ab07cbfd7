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
	fieldName   = regexp.MustCompile("^`([A-Z][A-Za-z]*)`$")
	defaultPart = regexp.MustCompile(`(?s)\bDefaults?:?\s.*`)
	number      = regexp.MustCompile(`[0-9](?:[0-9,.]*[0-9])?`)
)

// checkConfig compares the table of docs/tuning.md with limiter.Config: each has
// the other's fields, and a default is the same numbers as in the field's comment.
func checkConfig(fsys fs.FS) ([]string, error) {
	doc, err := fs.ReadFile(fsys, "docs/tuning.md")
	if err != nil {
		return nil, err
	}
	source, err := fs.ReadFile(fsys, "limiter/config.go")
	if err != nil {
		return nil, err
	}
	comments, err := configFields(string(source))
	if err != nil {
		return nil, err
	}
	defaults := documentedDefaults(string(doc))

	var problems []string
	for _, field := range slices.Sorted(maps.Keys(comments)) {
		stated, ok := defaults[field]
		if !ok {
			problems = append(problems, fmt.Sprintf("docs/tuning.md has no row for Config.%s", field))
			continue
		}
		got := number.FindAllString(stated, -1)
		want := number.FindAllString(defaultPart.FindString(comments[field]), -1)
		slices.Sort(got)
		slices.Sort(want)
		if stated == "" || !slices.Equal(slices.Compact(got), slices.Compact(want)) {
			problems = append(problems, fmt.Sprintf("docs/tuning.md: default of Config.%s is %q, but its comment says %q",
				field, stated, strings.Join(strings.Fields(comments[field]), " ")))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := comments[field]; !ok {
			problems = append(problems, fmt.Sprintf("docs/tuning.md has a row for %s, which Config does not have", field))
		}
	}
	return problems, nil
}

// documentedDefaults returns the cells under "Default" of the tables that have
// such a column, by the field that begins the row.
func documentedDefaults(doc string) map[string]string {
	defaults := map[string]string{}
	column := -1
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if column < 0 {
			column = slices.IndexFunc(cells, func(c string) bool { return strings.EqualFold(c, "default") })
			if column < 0 {
				column = len(cells) // another table: skip to its end
			}
			continue
		}
		if m := fieldName.FindStringSubmatch(cells[0]); m != nil && column < len(cells) {
			defaults[m[1]] = cells[column]
		}
	}
	return defaults
}

// configFields returns the comments of the exported fields of Config. A field
// without one of its own shares that of the field before it.
func configFields(source string) (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		var comment string
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			if f.Doc != nil {
				comment = f.Doc.Text()
			}
			for _, name := range f.Names {
				if name.IsExported() {
					comments[name.Name] = comment
				}
			}
		}
		return false
	})
	return comments, nil
}

func TestCheckConfig(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"limiter/config.go": {Data: []byte(`package limiter

type Config struct {
	// Name is required, at most 9 letters.
	Name string
	// Window is at least 1 ms. Default min(1.5 s, X/60), or
	// 300,000.
	Window int
	// A and B belong together. Defaults: 1 and 2.
	A int
	B int
	// Lost is nowhere. Default 3.
	Lost int
	// Wrong is wrong. Default 4.
	Wrong int
	// Empty is not said. Default: nobody.
	Empty int
	hidden int
}
`)},
		"docs/tuning.md": {Data: []byte("| Field | Default | Range |\n|---|---|---|\n" +
			"| `Name` | required | up to 9 |\n" +
			"| `Window` | 300,000 or `min(1.5 s, X/60)` | 1 ms |\n" +
			"| `A` | 1, 2 |\n| `B` | 2 and 1 |\n| `Wrong` | 5 | 4 |\n| `Empty` | | |\n| `Extra` | 1 | |\n" +
			"\n| Field | Note |\n|---|---|\n| `Other` | 1 |\n")},
	}
	got, err := checkConfig(fsys)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`docs/tuning.md: default of Config.Empty is "", but its comment says "Empty is not said. Default: nobody."`,
		`docs/tuning.md has no row for Config.Lost`,
		`docs/tuning.md: default of Config.Wrong is "5", but its comment says "Wrong is wrong. Default 4."`,
		`docs/tuning.md has a row for Extra, which Config does not have`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestCheckConfigNeedsTheDocument(t *testing.T) {
	t.Parallel()
	source := &fstest.MapFile{Data: []byte("package limiter\n\ntype Config struct{}\n")}
	if _, err := checkConfig(fstest.MapFS{"limiter/config.go": source}); err == nil {
		t.Error("no error without docs/tuning.md")
	}
}
