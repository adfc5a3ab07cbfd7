package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
)

// chart is a plot of lines.
type chart struct {
	title string
	x, y  axis
	lines []line
}

// axis runs from the first of its ticks to the last.
type axis struct {
	label string
	ticks []float64
	log   bool
}

type line struct {
	name   string
	color  string
	dashed bool
	dots   bool // mark the points
	points []point
}

type point struct{ x, y float64 }

// Colours and sizes of all charts.
const (
	blue, red, grey = "#1565c0", "#c62828", "#757575"

	width, height         = 760, 400
	left, right           = 64, 24 // margins
	top, bottom           = 64, 52
	frameWide, frameHight = width - left - right, height - top - bottom
)

// place returns how far along the axis a value lies, 0 to 1. What is off the axis
// is put at its end.
func (a *axis) place(v float64) float64 {
	from, to := a.ticks[0], a.ticks[len(a.ticks)-1]
	if a.log {
		v, from, to = math.Log(max(v, from)), math.Log(from), math.Log(to)
	}
	return min(max((v-from)/(to-from), 0), 1)
}

// svg draws the chart.
func (c *chart) svg() []byte {
	var b bytes.Buffer
	x := func(v float64) float64 { return left + c.x.place(v)*frameWide }
	y := func(v float64) float64 { return top + (1-c.y.place(v))*frameHight }
	text := func(x, y float64, attributes, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" %s>`, x, y, attributes)
		xml.EscapeText(&b, []byte(s)) // a buffer takes everything
		b.WriteString("</text>\n")
	}

	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#212121">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	text(left, 22, `font-size="14" font-weight="bold"`, c.title)
	for _, v := range c.x.ticks {
		fmt.Fprintf(&b, `<path d="M%.1f %d V%d" stroke="#e0e0e0"/>`+"\n", x(v), top, top+frameHight)
		text(x(v), top+frameHight+18, `text-anchor="middle"`, fmt.Sprint(v))
	}
	for _, v := range c.y.ticks {
		fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="#e0e0e0"/>`+"\n", left, y(v), left+frameWide)
		text(left-8, y(v)+4, `text-anchor="end"`, fmt.Sprint(v))
	}
	text(left+frameWide/2, height-12, `text-anchor="middle"`, c.x.label)
	text(-(top + frameHight/2), 16, `text-anchor="middle" transform="rotate(-90)"`, c.y.label)

	at := float64(left)
	for _, l := range c.lines {
		dash := ""
		if l.dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		b.WriteString(`<polyline points="`)
		for i, p := range l.points {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%.1f,%.1f", x(p.x), y(p.y))
		}
		fmt.Fprintf(&b, `" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", l.color, dash)
		if l.dots {
			for _, p := range l.points {
				fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x(p.x), y(p.y), l.color)
			}
		}
		fmt.Fprintf(&b, `<path d="M%.1f 42 h24" stroke="%s" stroke-width="2"%s/>`+"\n", at, l.color, dash)
		text(at+30, 46, "", l.name)
		at += 50 + 6.5*float64(len(l.name))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
