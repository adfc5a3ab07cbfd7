package docscheck

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var (
	codeSpan    = regexp.MustCompile("`[^`\n]*`")
	codeBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	linkTarget  = regexp.MustCompile(`(?m)\]\(<?([^)>\s]+)|^ {0,3}\[[^\]]+\]: *<?([^>\s]+)`)
	scheme      = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
	headingText = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// checkLinks returns the links of documents that lead to no file of the
// repository, or to no heading of a document.
func checkLinks(fsys fs.FS) ([]string, error) {
	docs, err := files(fsys, ".md")
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		prose := codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(docs[name], ""), "")
		for _, m := range linkTarget.FindAllStringSubmatch(prose, -1) {
			target := m[1] + m[2]
			if scheme.MatchString(target) {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			to := name
			if file != "" {
				to = path.Join(path.Dir(name), file)
			}
			if _, err := fs.Stat(fsys, to); err != nil {
				problems = append(problems, fmt.Sprintf("%s: link to %s leads nowhere", name, target))
			} else if anchor != "" && path.Ext(to) == ".md" && !slices.Contains(anchors(docs[to]), anchor) {
				problems = append(problems, fmt.Sprintf("%s: link to %s finds no such heading", name, target))
			}
		}
	}
	return problems, nil
}

// anchors returns the anchors of a document's headings, as code hosts make them:
// in lower case, without punctuation, numbered if they occur again.
func anchors(doc string) []string {
	var out []string
	seen := map[string]int{}
	for _, m := range headingText.FindAllStringSubmatch(codeBlock.ReplaceAllString(doc, ""), -1) {
		anchor := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		seen[anchor]++
		if n := seen[anchor]; n > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, n-1)
		}
		out = append(out, anchor)
	}
	return out
}

func TestCheckLinks(t *testing.T) {
	t.Parallel()
	fsys := fstest.MapFS{
		"README.md": {Data: []byte("# Top\n[a](docs/a.md) [b](docs/b.md) [c](https://example.org/x) [d](#top) [e](#bottom)\n" +
			"[f](docs/a.md#the-s1-rule-1) [g](docs/a.md#the) `[h](nowhere)` ![i](<img.png> \"title\")\n" +
			"```\n[j](nowhere)\n# Bottom\n```\n[k]: gone.md\n")},
		"docs/a.md": {Data: []byte("## The `S1` rule!\n## The S1 rule\n[back](../README.md) [out](../../README.md) [dir](.)\n")},
	}
	got, err := checkLinks(fsys)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"README.md: link to docs/b.md leads nowhere",
		"README.md: link to #bottom finds no such heading",
		"README.md: link to docs/a.md#the finds no such heading",
		"README.md: link to img.png leads nowhere",
		"README.md: link to gone.md leads nowhere",
		"docs/a.md: link to ../../README.md leads nowhere",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
