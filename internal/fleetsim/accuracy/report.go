package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/fleetlimit/fleetlimit/internal/fleetsim"
)

// The subjects of the document beside those that bars name.
var (
	bothKinds = []fleetsim.Kind{fleetsim.Limiter, fleetsim.Reference}
	mixSizes  = []int{16, 64}
)

// published returns all subjects of the document.
func published() []subject {
	var subjects []subject
	for _, w := range fleetsim.Workloads {
		for _, n := range sizes {
			for _, kind := range bothKinds {
				subjects = append(subjects, subject{w.Name, kind, n, 1})
			}
		}
		subjects = append(subjects, subject{w.Name, fleetsim.Limiter, 16, 4})
	}
	for _, share := range fleetsim.Mix {
		for _, n := range mixSizes {
			for _, kind := range bothKinds {
				subjects = append(subjects, subject{share.Workload().Name, kind, n, 1})
			}
		}
	}
	all := map[subject]bool{}
	for _, s := range subjects {
		all[s] = true
	}
	for _, s := range needed(marks(sizes)) {
		if !all[s] {
			subjects = append(subjects, s)
		}
	}
	return subjects
}

// publish runs everything and writes the document and its plots into dir.
func publish(r *runner, dir string, out io.Writer) error {
	subjects := published()
	measured := results{}
	err := r.run(subjects, func(s subject, f fleetsim.Summary) {
		measured[s] = f
		fmt.Fprintf(out, "%d of %d: %s, n = %d, %v\n", len(measured), len(subjects), s.workload, s.nodes, s.kind)
	})
	if err != nil {
		return err
	}
	step, err := stepChart(r)
	if err != nil {
		return err
	}
	text, err := render(r, measured)
	if err != nil {
		return err
	}
	charts := []*chart{step, nodesChart(measured), commandsChart(measured)}
	files := map[string][]byte{"accuracy.md": text}
	for i, name := range plots {
		files[name] = charts[i].svg()
	}
	return writeFiles(dir, files)
}

// plots are the files of the charts.
var plots = []string{"img/accuracy-step.svg", "img/accuracy-nodes.svg", "img/accuracy-commands.svg"}

func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

//go:embed accuracy.md.tmpl
var documentText string

// render makes the document.
func render(r *runner, measured results) ([]byte, error) {
	t := tables{measured}
	functions := template.FuncMap{
		"perSize":  t.perSize,
		"settle":   t.settle,
		"fourth":   t.fourEpochs,
		"commands": t.commands,
		"bars":     t.bars,
	}
	document, err := template.New("accuracy.md").Funcs(functions).Parse(documentText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = document.Execute(&b, map[string]any{
		"Seed":   r.seed,
		"Phases": r.phases,
		"RTT":    r.rtt,
		"Limit":  limit,
		"Window": int(window.Seconds()),
		"Mix":    fleetsim.MixLimit,
	})
	return b.Bytes(), err
}

// tables makes the document's tables.
type tables struct{ measured results }

// table returns rows in Markdown. The first is the head; the first columns hold
// words, the rest numbers.
func table(words int, rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", words) + strings.Repeat("---:|", len(row)-words) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// columns are the figures that perSize knows.
var columns = map[string]func(fleetsim.Summary) float64{
	"over":      func(s fleetsim.Summary) float64 { return s.Mean.Over },
	"worst":     func(s fleetsim.Summary) float64 { return s.Worst.Over },
	"p99":       func(s fleetsim.Summary) float64 { return s.Mean.OverP99 },
	"lost":      func(s fleetsim.Summary) float64 { return s.Mean.Lost },
	"underhalf": func(s fleetsim.Summary) float64 { return float64(s.Mean.UnderHalf) },
	"fairness":  func(s fleetsim.Summary) float64 { return s.Mean.Fairness },
	"commands":  func(s fleetsim.Summary) float64 { return s.Mean.Commands },
}

// perSize shows one figure for each workload and size, ours beside the
// reference's.
func (t tables) perSize(figure, format string) (string, error) {
	value, ok := columns[figure]
	if !ok {
		return "", fmt.Errorf("no figure is named %q", figure)
	}
	head := []string{"workload"}
	for _, n := range sizes {
		head = append(head, fmt.Sprintf("N = %d", n))
	}
	rows := [][]string{head}
	for _, w := range fleetsim.Workloads {
		row := []string{w.Name}
		for _, n := range sizes {
			row = append(row, t.pair(value, format, w.Name, n))
		}
		rows = append(rows, row)
	}
	return table(1, rows), nil
}

// pair is a cell with ours and the reference's figure.
func (t tables) pair(value func(fleetsim.Summary) float64, format, workload string, n int) string {
	ours := value(t.measured[subject{workload, fleetsim.Limiter, n, 1}])
	theirs := value(t.measured[subject{workload, fleetsim.Reference, n, 1}])
	return fmt.Sprintf("**"+format+"** / "+format, ours, theirs)
}

// settle shows the time to limit after a step.
func (t tables) settle() string {
	head := []string{"workload", "exact log"}
	for _, n := range sizes {
		head = append(head, fmt.Sprintf("N = %d", n))
	}
	rows := [][]string{head}
	for _, w := range fleetsim.Workloads {
		if w.Step == 0 {
			continue
		}
		exact := t.measured[subject{w.Name, fleetsim.Limiter, 16, 1}].Mean.ExactSettle
		row := []string{w.Name, fmt.Sprintf("%.1f", exact.Seconds())}
		for _, n := range sizes {
			seconds := func(s fleetsim.Summary) float64 { return s.Mean.Settle.Seconds() }
			row = append(row, t.pair(seconds, "%.1f", w.Name, n))
		}
		rows = append(rows, row)
	}
	return table(1, rows)
}

// fourEpochs shows what four epochs per window change.
func (t tables) fourEpochs() string {
	rows := [][]string{{"workload", "over-admission", "worst", "lost", "commands"}}
	for _, w := range fleetsim.Workloads {
		one := t.measured[subject{w.Name, fleetsim.Limiter, 16, 1}]
		four := t.measured[subject{w.Name, fleetsim.Limiter, 16, 4}]
		rows = append(rows, []string{
			w.Name,
			fmt.Sprintf("%.1f → **%.1f**", one.Mean.Over, four.Mean.Over),
			fmt.Sprintf("%.1f → **%.1f**", one.Worst.Over, four.Worst.Over),
			fmt.Sprintf("%.2f → **%.2f**", one.Mean.Lost, four.Mean.Lost),
			fmt.Sprintf("%.2f → **%.2f**", one.Mean.Commands, four.Mean.Commands),
		})
	}
	return table(1, rows)
}

// commands shows what the mix of keys costs.
func (t tables) commands() string {
	head := []string{"nodes", "N"}
	for _, share := range fleetsim.Mix {
		head = append(head, fmt.Sprintf("%gx", share.Limits))
	}
	rows := [][]string{append(head, "fleet, per key")}
	for _, n := range mixSizes {
		for _, kind := range bothKinds {
			row := []string{kind.String(), fmt.Sprint(n)}
			for _, share := range fleetsim.Mix {
				row = append(row, fmt.Sprintf("%.2f", t.measured[subject{share.Workload().Name, kind, n, 1}].Mean.Commands))
			}
			sum := t.measured.mix(subject{kind: kind, nodes: n, epochs: 1})
			rows = append(rows, append(row, fmt.Sprintf("**%.2f**", sum)))
		}
	}
	return table(1, rows)
}

// bars shows each bar, and where its figure comes nearest to it or falls short
// most.
func (t tables) bars() string {
	rows := [][]string{{"bar", "figure", "cases", "epochs", "measured", "required", "reached"}}
	all := marks(sizes)
	for i := range bars {
		b := &bars[i]
		nearest, cases, reached := math.Inf(1), 0, 0
		var shown float64
		for _, m := range all {
			if m.bar != b {
				continue
			}
			value, ok := m.reached(t.measured)
			cases++
			if ok {
				reached++
			}
			margin := b.bound - value
			if b.figure.least {
				margin = -margin
			}
			if margin < nearest {
				nearest, shown = margin, value
			}
		}
		sign, note := "≤", "yes"
		if b.figure.least {
			sign = "≥"
		}
		if reached < cases {
			note = fmt.Sprintf("**no**, %d of %d", reached, cases)
		}
		rows = append(rows, []string{
			b.id, b.figure.name, b.cases(), fmt.Sprint(b.epochs),
			fmt.Sprintf("%.2f", shown), fmt.Sprintf("%s %.2f", sign, b.bound), note,
		})
	}
	return table(3, rows)
}

// cases names what a bar holds for, in few words.
func (b *bar) cases() string {
	which := strings.Join(b.workloads, ", ")
	if len(b.workloads) > 4 {
		which = fmt.Sprintf("%d workloads", len(b.workloads))
	}
	if b.nodes == nil {
		return which + "; every N"
	}
	var nodes []string
	for _, n := range b.nodes {
		nodes = append(nodes, strconv.Itoa(n))
	}
	return which + "; N = " + strings.Join(nodes, ", ")
}

// stepChart follows the window's count through the cold step.
func stepChart(r *runner) (*chart, error) {
	const every = 500 * time.Millisecond
	s := subject{"step cold to 10x", fleetsim.Limiter, 16, 1}
	phase := fleetsim.Phases(r.phases, window)[0]
	points := func(levels []int64) []point {
		var points []point
		for i, n := range levels {
			points = append(points, point{(time.Duration(i) * every).Seconds(), float64(n) / limit})
		}
		return points
	}
	c := &chart{
		title: "Step from cold to 10 times the limit, 16 nodes",
		x:     axis{label: "seconds", ticks: []float64{0, 30, 60, 90, 120, 150, 180, 210, 240}},
		y:     axis{label: "admitted in the last 60 s, in limits", ticks: []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
		lines: []line{{name: "limit", color: grey, points: []point{{0, 1}, {240, 1}}}},
	}
	var exact line
	for i, kind := range bothKinds {
		s.kind = kind
		trace, err := fleetsim.Run(r.spec(s, phase))
		if err != nil {
			return nil, err
		}
		fleet, log := trace.Levels(every)
		c.lines = append(c.lines, line{name: kind.String(), color: []string{blue, red}[i], points: points(fleet)})
		exact = line{name: "exact log", color: "#000000", dashed: true, points: points(log)}
	}
	c.lines = append(c.lines, exact)
	return c, nil
}

// nodesChart shows over-admission against the size of the fleet.
func nodesChart(measured results) *chart {
	c := &chart{
		title: "Over-admission against the size of the fleet",
		x:     axis{label: "nodes", ticks: []float64{1, 4, 16, 64, 256}, log: true},
		y:     axis{label: "over-admission, % of the limit", ticks: []float64{0.1, 1, 10, 100, 1000}, log: true},
	}
	for i, kind := range bothKinds {
		for _, w := range []string{"const 2x", "const 10x"} {
			l := line{name: kind.String() + ", " + w, color: []string{blue, red}[i], dashed: w == "const 2x", dots: true}
			for _, n := range sizes {
				l.points = append(l.points, point{float64(n), measured[subject{w, kind, n, 1}].Mean.Over})
			}
			c.lines = append(c.lines, l)
		}
	}
	return c
}

// commandsChart shows store commands against a key's load.
func commandsChart(measured results) *chart {
	c := &chart{
		title: "Store commands against pressure, 16 nodes",
		x:     axis{label: "offered load, in limits", ticks: []float64{0.001, 0.01, 0.1, 1, 10}, log: true},
		y:     axis{label: "commands per key, node and second", ticks: []float64{0, 0.5, 1, 1.5, 2, 2.5}},
	}
	for i, kind := range bothKinds {
		l := line{name: kind.String(), color: []string{blue, red}[i], dots: true}
		for _, share := range fleetsim.Mix {
			l.points = append(l.points, point{share.Limits, measured[subject{share.Workload().Name, kind, 16, 1}].Mean.Commands})
		}
		c.lines = append(c.lines, l)
	}
	return c
}
