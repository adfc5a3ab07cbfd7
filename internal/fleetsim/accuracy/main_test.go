package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

func TestRun_PrintsALinePerCase(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run([]string{"-only", "^(const 0.5x|burst)", "-n", "1,2", "-phases", "1", "-reference"}, &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if match := regexp.MustCompile(`^(.+?) {2,}(fleetlimit|reference) +(\d+) +1 `).FindStringSubmatch(line); match != nil {
			got = append(got, strings.Join(match[1:], "/"))
		}
	}
	want := []string{
		"const 0.5x/fleetlimit/1", "const 0.5x/reference/1", "const 0.5x/fleetlimit/2", "const 0.5x/reference/2",
		"burst of 20 limits cold/fleetlimit/1", "burst of 20 limits cold/reference/1",
		"burst of 20 limits cold/fleetlimit/2", "burst of 20 limits cold/reference/2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("cases %q, want %q; output:\n%s", got, want, &out)
	}
}

func TestRun_RefusesBadArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-phases", "0"}, {"-only", "("}, {"-n", "0"}, {"-n", "x"}, {"-unknown"}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}

func TestRunner_PrintsTheSameWhateverRunsBeside(t *testing.T) {
	t.Parallel()
	args := []string{"-only", "outage 30 s, 0.5x", "-n", "1,4", "-phases", "2"}
	var outs [2]bytes.Buffer
	for i := range outs {
		if err := run(args, &outs[i]); err != nil {
			t.Fatal(err)
		}
	}
	if outs[0].String() != outs[1].String() {
		t.Errorf("two runs print\n%s\nand\n%s", &outs[0], &outs[1])
	}
}

func TestRunner_ReportsAnError(t *testing.T) {
	t.Parallel()
	r := runner{phases: 2, seed: 1}
	// More epochs than a limiter takes, among cases that run.
	good, bad := subject{"const 0.5x", fleetsim.Limiter, 1, 1}, subject{"const 0.5x", fleetsim.Limiter, 1, 1000}
	if _, err := r.collect([]subject{good, bad, good, good}); err == nil {
		t.Error("no error, though a case cannot run")
	}
}

func TestBars_AreWellFormed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, b := range bars {
		if seen[b.id] {
			t.Errorf("two bars are named %q", b.id)
		}
		seen[b.id] = true
		if len(b.workloads) == 0 {
			t.Errorf("%s: no workloads", b.id)
		}
		for _, w := range b.workloads {
			if _, ok := workloads[w]; !ok && w != mix {
				t.Errorf("%s: no workload is named %q", b.id, w)
			}
		}
	}
}

func TestNeeded_HasEachSubjectOnce(t *testing.T) {
	t.Parallel()
	seen := map[subject]int{}
	for _, s := range needed(marks(checkSizes)) {
		seen[s]++
	}
	for s, n := range seen {
		if n != 1 {
			t.Errorf("%v is run %d times", s, n)
		}
	}
	for _, s := range []subject{
		{"const 2x", fleetsim.Limiter, 256, 1},
		{"traffic moves every 10 s at 2x", fleetsim.Limiter, 64, 4},
		{"on-off 15 s at 6x in 60 s", fleetsim.Limiter, 1, 1},
		{"key at 0.3x", fleetsim.Limiter, 16, 1},
	} {
		if seen[s] == 0 {
			t.Errorf("%v is not run", s)
		}
	}
}

// flawless returns results that reach all bars.
func flawless() results {
	all := results{}
	for _, s := range published() {
		all[s] = fleetsim.Summary{
			Mean:  fleetsim.Figures{LowestDenial: 100, Fairness: 1},
			Worst: fleetsim.Figures{LowestDenial: 100, Fairness: 1},
		}
	}
	return all
}

func TestVerdict_NamesWhatFallsShort(t *testing.T) {
	t.Parallel()
	const workload = "const 2x"
	for _, test := range []struct {
		name   string
		nodes  int
		change func(f *fleetsim.Figures)
		want   string
	}{
		{"at the bar", 16, func(f *fleetsim.Figures) { f.Over = 1.5 }, ""},
		{"rounded to the bar", 16, func(f *fleetsim.Figures) { f.Over = 1.504 }, ""},
		{"over-admission", 16, func(f *fleetsim.Figures) { f.Over = 1.51 }, "short of the bar: over-2x"},
		{"over-admission of many", 256, func(f *fleetsim.Figures) { f.Over = 6.1 }, "short of the bar: over-2x-256"},
		{"over-admission of one", 1, func(f *fleetsim.Figures) { f.Over = 1.4 }, "short of the bar: lone-2x"},
		{"goodput", 1, func(f *fleetsim.Figures) { f.Lost = 1.1 }, "short of the bar: lost-constant"},
		{"denials", 16, func(f *fleetsim.Figures) { f.UnderHalf = 1 }, "short of the bar: under-half"},
		{"commands", 16, func(f *fleetsim.Figures) { f.Commands = 2.3 }, "short of the bar: commands-2x"},
		{"a low denial", 1, func(f *fleetsim.Figures) { f.LowestDenial = 98 }, "short of the bar: lone-low-2x"},
		{"two at once", 16, func(f *fleetsim.Figures) { f.Over, f.Lost = 2, 2 }, "short of the bar: over-2x, lost-constant"},
		{"what no bar is about", 4, func(f *fleetsim.Figures) { f.Over = 100 }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			all := flawless()
			s := subject{workload, fleetsim.Limiter, test.nodes, 1}
			f := all[s]
			test.change(&f.Mean)
			all[s] = f
			var out bytes.Buffer
			err := verdict(marks(checkSizes), all, &out)
			if got := fmt.Sprint(err); err != nil && got != test.want || err == nil && test.want != "" {
				t.Errorf("verdict is %v, want %q", err, test.want)
			}
			if got, want := strings.Contains(out.String(), "falls short"), test.want != ""; got != want {
				t.Errorf("a line says that a figure falls short: %v, want %v; output:\n%s", got, want, &out)
			}
		})
	}
}

func TestMix_WeighsTheKeysAndAddsUpTheFleet(t *testing.T) {
	t.Parallel()
	all := results{}
	s := subject{kind: fleetsim.Limiter, nodes: 16, epochs: 1}
	for _, share := range fleetsim.Mix {
		s.workload = share.Workload().Name
		commands := 0.1
		if share.Limits == 0.002 { // 60 % of the keys
			commands = 0.2
		}
		all[s] = fleetsim.Summary{Mean: fleetsim.Figures{Commands: commands}}
	}
	if got, want := fmt.Sprintf("%.4f", all.mix(s)), "2.5600"; got != want {
		t.Errorf("the fleet sends %s commands per key, want %s", got, want)
	}
}

func TestRender_ShowsEveryWorkloadAndBar(t *testing.T) {
	t.Parallel()
	all := flawless()
	all[subject{"const 2x", fleetsim.Limiter, 64, 1}] = fleetsim.Summary{Mean: fleetsim.Figures{Over: 12.3, UnderHalf: 77}}
	all[subject{"const 2x", fleetsim.Reference, 64, 1}] = fleetsim.Summary{Mean: fleetsim.Figures{Over: 45.6}}
	text, err := render(&runner{phases: 6, seed: 42, rtt: 2 * time.Millisecond}, all)
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	for _, w := range fleetsim.Workloads {
		// The figures by size are seven, and then there are the four epochs.
		if n := strings.Count(document, "| "+w.Name+" |"); n < 8 {
			t.Errorf("%q has %d rows, want at least 8", w.Name, n)
		}
	}
	for _, want := range []string{
		"-seed 42 -phases 6 -rtt 2ms",
		"**12.3** / 45.6",
		"| under-half | denials under half the limit | 16 workloads; every N | 1 | 77.00 | ≤ 0.00 | **no**, 79 of 80 |",
		"| over-moving-4 | over-admission | traffic moves every 10 s at 2x; N = 16, 64, 256 | 4 | 0.00 | ≤ 10.00 | yes |",
	} {
		if !strings.Contains(document, want) {
			t.Errorf("the document does not say %q", want)
		}
	}
	// All rows of a table have as many cells as its head.
	cells := 0
	for line := range strings.Lines(document) {
		n := strings.Count(line, "|")
		if cells > 0 && n > 0 && n != cells {
			t.Errorf("row has %d cells, want %d: %s", n-1, cells-1, line)
		}
		cells = n
	}
}

func TestDocument_LinksToThePlots(t *testing.T) {
	t.Parallel()
	for _, name := range plots {
		if !strings.Contains(documentText, "("+name+")") {
			t.Errorf("the document does not show %s", name)
		}
	}
}

func TestChart_DrawsWellFormedSVGInsideItsFrame(t *testing.T) {
	t.Parallel()
	c := &chart{
		title: "a < b & c",
		x:     axis{label: "x", ticks: []float64{1, 10, 100}, log: true},
		y:     axis{label: "y", ticks: []float64{0, 5}},
		lines: []line{
			{name: "line", color: blue, points: []point{{1, 0}, {10, 2.5}, {100, 5}}, dots: true},
			{name: "off the axes", color: red, points: []point{{0, -1}, {1000, 9}}, dashed: true},
		},
	}
	svg := c.svg()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{
		`<polyline points="64.0,348.0 400.0,206.0 736.0,64.0"`,
		`<polyline points="64.0,348.0 736.0,64.0"`,
		"a &lt; b &amp; c",
	} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}

func TestWriteFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "docs")
	files := map[string][]byte{"a.md": []byte("a"), "img/b.svg": []byte("b")}
	if err := writeFiles(dir, files); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
		}
	}
}
