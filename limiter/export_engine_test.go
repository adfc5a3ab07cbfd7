package limiter

// Held returns how many entries the loops and the backlog of l hold, beside those
// that only the cache does. No loop may be at work.
func Held(l *Limiter) int {
	held := make(map[*Entry]bool)
	for _, p := range l.parts {
		for e := p.stack.Load(); e != nil; e = e.next {
			held[e] = true
		}
		for _, e := range p.tracked {
			held[e] = true
		}
	}
	for _, e := range l.orphans.entries {
		held[e] = true
	}
	return len(held)
}
